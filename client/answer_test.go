package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

func TestErrorsAreRebuilt(t *testing.T) {
	t.Parallel()
	for code, row := range api.Codes {
		if row.Status == 0 {
			continue
		}
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			e := api.Errorf(code, "what happened").WithField("f").WithFix("do this")
			e.Mismatch, e.TaskID, e.RequestID = []string{"input.a"}, "t9", "r1"
			e.Tombstone = &api.Tombstone{State: api.Succeeded, ResultHash: "ab"}
			reply(w, row.Status, e)
		}, &client.Opts{MaxRetries: -1})
		_, err := c.Get(t.Context(), "t1", nil)
		want := &api.Error{Code: code, Status: row.Status, Message: "what happened", Fix: "do this", Field: "f", Mismatch: []string{"input.a"}, TaskID: "t9", RequestID: "r1", Tombstone: &api.Tombstone{State: api.Succeeded, ResultHash: "ab"}}
		var got *api.Error
		if !errors.As(err, &got) || !errors.Is(err, row.Class) {
			t.Errorf("%s: got %v, want an *api.Error of class %v", code, err, row.Class)
			continue
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("%s: -got +want:\n%s", code, diff)
		}
	}
}

func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		is     error
		not    error
		says   string
	}{
		{"a proxy's page", 502, html, "<html><h1>Bad\nGateway</h1>", api.ErrUnavailable, nil, `"Bad Gateway"`},
		{"another server's 404", 404, html, "<h1>Not Found</h1>", api.ErrUnavailable, api.ErrNotFound, "not an answer of onefold"},
		{"another server's JSON 404", 404, map[string]string{"Content-Type": "application/json"}, `{"message":"no Route"}`, api.ErrUnavailable, api.ErrNotFound, "404"},
		{"a problem without a code", 404, map[string]string{"Content-Type": "application/problem+json"}, `{"title":"x"}`, api.ErrUnavailable, api.ErrNotFound, "404"},
		{"a proxy's size limit", 413, html, "<h1>Too Large</h1>", api.ErrInvalid, nil, "413"},
		{"a proxy's rate limit", 429, nil, "", api.ErrRateLimited, nil, "no content type"},
		{"a login page", 200, html, "<html>Sign in", api.ErrUnavailable, nil, "not an answer of onefold"},
		{"a closed door", 401, html, "who?", api.ErrUnavailable, api.ErrUnauthorized, "401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			net := &script{steps: []step{answers(c.status, c.header, c.body)}}
			cl := connect(t, "http://onefold.test", &client.Opts{HTTP: &http.Client{Transport: net}, MaxRetries: -1})
			_, err := cl.Get(t.Context(), "t1", nil)
			if !errors.Is(err, c.is) || (c.not != nil && errors.Is(err, c.not)) {
				t.Errorf("got %v, want %v", err, c.is)
			}
			if !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
}
