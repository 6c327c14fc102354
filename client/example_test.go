package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// shop stands for a server: it knows one order's task, and one whose outcome
// is not known.
func shop() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task := &api.Task{ID: "0199", Kind: "invoice.extract", Key: r.Header.Get("Idempotency-Key"), State: api.Succeeded, Result: json.RawMessage(`{"number":"2026-117","total":"1190.00"}`)}
		body, _ := io.ReadAll(r.Body)
		switch {
		case task.Key == "order:13:extract":
			task.State, task.Result = api.Unknown, nil
			task.Error = &api.TaskError{Code: "outcome_unknown", Message: "no answer within 120 s"}
		case task.Key == "order:7:extract" && string(body) != `{"kind":"invoice.extract","input":{"text":"Invoice 2026-117"}}`:
			e := api.Errorf(api.CodeKeyReused, "the key was used with another payload")
			e.Mismatch = []string{"input.text"}
			reply(w, e.Status, e)
			return
		}
		reply(w, http.StatusAccepted, task)
	}))
}

// Do submits and waits. Called again, after a crash or by a second process, it
// gives the same result without a second call to the model.
func Example() {
	server := shop()
	defer server.Close()

	c, err := client.New(server.URL, "of_example_secret", nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	task, err := c.Do(ctx, client.Key("order", 7, "extract"), api.Submit{
		Kind:  "invoice.extract",
		Input: json.RawMessage(`{"text":"Invoice 2026-117"}`),
	})
	if err != nil {
		log.Fatal(err)
	}
	invoice, err := client.Result[struct{ Number, Total string }](task)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(invoice.Number, invoice.Total)
	// Output: 2026-117 1190.00
}

// A call that went out without a known outcome is not a failure: whoever
// decides gets the task with the error.
func ExampleClient_Wait() {
	server := shop()
	defer server.Close()
	c, err := client.New(server.URL, "of_example_secret", nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = c.Do(context.Background(), client.Key("order", 13, "extract"), api.Submit{Kind: "invoice.extract"})
	var e *api.Error
	switch {
	case errors.Is(err, api.ErrUnknown) && errors.As(err, &e):
		fmt.Println("look into", e.Task.ID, "before anything else:", e.Message)
	case errors.Is(err, api.ErrFailed):
		fmt.Println("failed for good")
	case errors.Is(err, api.ErrUnavailable):
		fmt.Println("ask again with the same key")
	}
	// Output: look into 0199 before anything else: no answer within 120 s
}

// One key means one payload.
func ExampleClient_Submit_keyReused() {
	server := shop()
	defer server.Close()
	c, err := client.New(server.URL, "of_example_secret", nil)
	if err != nil {
		log.Fatal(err)
	}

	_, err = c.Submit(context.Background(), client.Key("order", 7, "extract"), api.Submit{
		Kind:  "invoice.extract",
		Input: json.RawMessage(`{"text":"another text"}`),
	}, nil)
	var e *api.Error
	if errors.Is(err, api.ErrKeyReused) && errors.As(err, &e) {
		fmt.Println(e.Mismatch)
	}
	// Output: [input.text]
}

func ExampleKey() {
	fmt.Println(client.Key("order", 7, "extract"))
	fmt.Println(client.Key("file", "a:b c.pdf"))
	// Output:
	// order:7:extract
	// file:a%3Ab%20c.pdf
}
