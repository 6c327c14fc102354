package client_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
)

func TestAttempts(t *testing.T) {
	t.Parallel()
	want := []api.Attempt{{Epoch: 1, Number: 1, Outcome: "unknown", Code: "stream_cut", Partial: "half <an", Billed: api.BilledYes, Parts: []api.AttemptPart{api.PartPartial}}}
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/tasks/t1/attempts":
			reply(w, 200, api.List[api.Attempt]{Items: want})
		case "/v1/tasks/t1/attempts/1/partial":
			_, _ = w.Write([]byte("half <an\x00"))
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}, nil)
	got, err := c.Attempts(t.Context(), "t1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("-got +want:\n%s", diff)
	}
	part, err := c.AttemptPart(t.Context(), "t1", 1, api.PartPartial)
	if err != nil || string(part) != "half <an\x00" {
		t.Errorf("got %q, %v", part, err)
	}
}
