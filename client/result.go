package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/onefold-dev/onefold/api"
)

// Result decodes the result of a task that succeeded. For any other state the
// error is the one Wait returns. Where T leaves a number's type open (any, a
// map of any) it becomes a json.Number, so that no digit is lost; Result with
// json.RawMessage gives the bytes as they are.
func Result[T any](t *api.Task) (T, error) {
	var v T
	if t.State != api.Succeeded {
		return v, outcome(t)
	}
	if len(t.Result) == 0 {
		return v, &callError{op: "task " + t.ID, err: api.Errorf(api.CodeResultExpired, "the result is not in the task: it was purged, or the task comes from a list")}
	}
	d := json.NewDecoder(bytes.NewReader(t.Result))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("decode the result of task %s as %T: %w", t.ID, v, err)
	}
	return v, nil
}
