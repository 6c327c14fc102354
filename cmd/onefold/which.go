package main

import (
	"context"
	"fmt"

	"github.com/onefold-dev/onefold/client"
)

// which names a task: by its id, or by kind and key.
type which struct {
	ID string `arg:"" optional:"" help:"The task's id; - or nothing with --kind and --key."`
	byKey
}

// byKey names a task by what its caller knows of it.
type byKey struct {
	Kind string `placeholder:"KIND" help:"With --key, in place of an id: the newest task of the kind under the key."`
	Key  string `placeholder:"KEY" help:"See --kind."`
}

// task is the id of the task meant.
func (w *which) task(ctx context.Context, cl *client.Client) (string, error) {
	id, err := w.find(ctx, cl, w.ID)
	if err == nil {
		w.ID = id // what is printed later names it
	}
	return id, err
}

func (k byKey) find(ctx context.Context, cl *client.Client, id string) (string, error) {
	given := id != "" && id != "-"
	switch {
	case (k.Kind == "") != (k.Key == ""):
		return "", usage("--kind and --key go together", "For example: --kind llm.chat --key order:7")
	case given && k.Key != "":
		return "", usage("a task is named by its id, or by --kind and --key", "Leave one of them out.")
	case given:
		return id, nil
	case k.Key == "":
		return "", usage("which task?", "Give its id, or --kind and --key.")
	}
	t, err := cl.Find(ctx, k.Kind, k.Key)
	if err != nil {
		return "", fmt.Errorf("look for the key: %w", err)
	}
	return t.ID, nil
}
