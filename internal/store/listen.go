package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/onefold-dev/onefold/internal/task"
)

// ListenSettled makes a connection receive the hints of NotifySettled. It must
// be a direct one and in no transaction: a pooler would hand it to somebody
// else, and an open transaction delivers nothing.
func ListenSettled(ctx context.Context, conn DBTX) error {
	if _, err := conn.Exec(ctx, `LISTEN `+SettledChannel); err != nil {
		return fmt.Errorf("listen for settled tasks: %w", err)
	}
	return nil
}

// SettledIDs reads the payload of a hint. all means "everyone look again": the
// payload is empty, or not one of ours.
func SettledIDs(payload string) (ids []task.ID, all bool) {
	if payload == "" {
		return nil, true
	}
	for text := range strings.SplitSeq(payload, ",") {
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, true
		}
		ids = append(ids, id)
	}
	return ids, false
}
