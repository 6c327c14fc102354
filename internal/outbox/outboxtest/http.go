package outboxtest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// StartHTTP starts an HTTP receiver. id finds the stable id of a delivery, and check, where given, judges its headers.
func StartHTTP(t *testing.T, b Behaviour, secret string, id func(*http.Request) string, check func(r *http.Request, body []byte) error) *Receiver {
	t.Helper()
	rec := NewReceiver()
	rec.Secret = secret
	if b == Dead {
		rec.URL = "http://" + deadAddress(t) + "/hook"
		return rec
	}
	over := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read the delivery: %v", err)
		}
		if check != nil {
			if err := check(r, body); err != nil {
				t.Errorf("delivery not verified: %v", err)
			}
		}
		rec.Take(Received{ID: id(r), Body: body})
		behave(w, r, b, over)
	}))
	t.Cleanup(func() {
		close(over)
		srv.CloseClientConnections()
		srv.Close()
	})
	rec.URL = srv.URL + "/hook"
	return rec
}

func behave(w http.ResponseWriter, r *http.Request, b Behaviour, over <-chan struct{}) {
	switch b {
	case Accept:
		w.WriteHeader(http.StatusNoContent)
	case Refuse:
		w.WriteHeader(http.StatusBadRequest)
	case Fail:
		w.WriteHeader(http.StatusInternalServerError)
	case Hang:
		select {
		case <-r.Context().Done():
		case <-over:
		}
	case Reset:
		panic(http.ErrAbortHandler)
	case Shout:
		w.WriteHeader(http.StatusBadRequest)
		line := make([]byte, 64<<10)
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
}

// deadAddress is an address nobody listens at: its port was free a moment ago.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
