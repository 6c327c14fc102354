package server

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// A body that trickles in holds a request for a bounded time.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{r: r, w: &recorder{ResponseWriter: w}, line: telemetry.NewLine(telemetry.New(t.Output(), nil), "request")}
		_, err := x.body(1000, 50*time.Millisecond)
		got <- err
	}))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")); err != nil {
		t.Fatal(err)
	}
	var e *api.Error
	if err := <-got; !errors.As(err, &e) || e.Code != api.CodeRequestTimeout {
		t.Errorf("got %v, want %s", err, api.CodeRequestTimeout)
	}
}

// The time limit of the body must not end a wait that follows it.
func TestReadDeadlineIsLifted(t *testing.T) {
	t.Parallel()
	const within = 50 * time.Millisecond
	got := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{r: r, w: &recorder{ResponseWriter: w}, line: telemetry.NewLine(telemetry.New(t.Output(), nil), "request")}
		if _, err := x.body(1000, within); err != nil {
			got <- err
			return
		}
		select {
		case <-r.Context().Done():
			got <- r.Context().Err()
		case <-time.After(3 * within):
			got <- nil
		}
	}))
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("the request ended after its body's time limit: %v", err)
	}
}
