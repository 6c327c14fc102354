package api_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/onefold-dev/onefold/api"
)

func TestErrorIs(t *testing.T) {
	t.Parallel()
	failed := &api.Task{State: api.Failed}
	for _, c := range []struct {
		name string
		err  *api.Error
		want error
	}{
		{"code of the table", api.Errorf(api.CodeNotFound, "no task"), api.ErrNotFound},
		{"unavailable", api.Errorf(api.CodeHeld, "held"), api.ErrUnavailable},
		{"a newer server's code, 404", &api.Error{Code: "gone_fishing", Status: 404}, api.ErrNotFound},
		{"a newer server's code, 418", &api.Error{Code: "teapot", Status: 418}, api.ErrInvalid},
		{"a newer server's code, 503", &api.Error{Code: "nap", Status: 503}, api.ErrUnavailable},
		{"a newer server's code, 507", &api.Error{Code: "full", Status: 507}, api.ErrInternal},
		{"a failed task's unknown code", &api.Error{Code: "brand_new", Task: failed}, api.ErrFailed},
		{"a failed task's code of another class", &api.Error{Code: api.CodeRateLimited, Task: failed}, api.ErrFailed},
		{"an unknown task", &api.Error{Code: "brand_new", Task: &api.Task{State: api.Unknown}}, api.ErrUnknown},
	} {
		if err := fmt.Errorf("wrapped: %w", c.err); !errors.Is(err, c.want) {
			t.Errorf("%s: errors.Is(%v, %v) does not hold", c.name, err, c.want)
		}
	}
	err := api.Errorf(api.CodeNotFound, "no task")
	if errors.Is(err, api.ErrConflict) || errors.Is(err, &api.Error{Code: api.CodeConflict}) {
		t.Errorf("%v is said to be a conflict", err)
	}
	if !errors.Is(err, &api.Error{Code: api.CodeNotFound}) {
		t.Errorf("%v is not found by its code", err)
	}
}
