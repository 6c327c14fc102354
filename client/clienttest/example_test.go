package clienttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
	"github.com/onefold-dev/onefold/client/clienttest"
)

// extract is what a program does with onefold.
func extract(ctx context.Context, c *client.Client, order int, text string) (string, error) {
	input, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return "", err
	}
	task, err := c.Do(ctx, client.Key("order", order, "extract"), api.Submit{Kind: "invoice.extract", Input: input})
	if err != nil {
		return "", err
	}
	invoice, err := client.Result[struct{ Total string }](task)
	return invoice.Total, err
}

// A test of a program: the work is done once, whatever is asked twice and
// whatever answer is lost.
func Example() {
	server := clienttest.New(map[string]clienttest.Kind{
		"invoice.extract": {Do: clienttest.Always(clienttest.Succeed(`{"total":"1190.00"}`))},
	})
	defer server.Close()
	ctx := context.Background()

	server.LoseAnswers(1)
	total, err := extract(ctx, server.Client(), 7, "Invoice 2026-117")
	fmt.Println(total, err)
	total, err = extract(ctx, server.Client(), 7, "Invoice 2026-117")
	fmt.Println(total, err)
	fmt.Println("calls:", len(server.Calls("invoice.extract")))

	_, err = extract(ctx, server.Client(), 7, "another text")
	fmt.Println(errors.Is(err, api.ErrKeyReused))
	// Output:
	// 1190.00 <nil>
	// 1190.00 <nil>
	// calls: 1
	// true
}

// What became of the call is not known: the program has to wait for a person.
func ExampleNotKnown() {
	server := clienttest.New(map[string]clienttest.Kind{
		"invoice.extract": {Do: clienttest.Always(clienttest.NotKnown("no answer within 120 s"))},
	})
	defer server.Close()

	_, err := extract(context.Background(), server.Client(), 7, "Invoice 2026-117")
	var e *api.Error
	fmt.Println(errors.Is(err, api.ErrUnknown), errors.As(err, &e) && e.Task.State == api.Unknown)
	// Output: true true
}
