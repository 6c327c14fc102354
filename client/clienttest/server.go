package clienttest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/client"
)

// Server is a onefold server in memory. It is safe for concurrent use.
type Server struct {
	// URL and Key are what client.New takes.
	URL string
	Key string

	http  *httptest.Server
	kinds map[string]Kind
	works sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and made anew whenever a task moves
	closing chan struct{}
	closed  bool
	tasks   []*task // in the order they came
	byID    map[string]*task
	byPlace map[place]*task
	batches []*batch // in the order they came
	calls   []Call
	refuse  []*api.Error
	lose    int
}

// New starts a server that knows the kinds given. Close ends it.
func New(kinds map[string]Kind) *Server {
	s := &Server{
		Key: "of_clienttest_0123456789abcdef", kinds: kinds,
		changed: make(chan struct{}), closing: make(chan struct{}), byID: map[string]*task{}, byPlace: map[place]*task{},
	}
	for name, k := range kinds {
		if k.Dedupe == api.DedupeWindow && k.Window <= 0 {
			panic("clienttest: the kind " + name + " has no window")
		}
	}
	s.http = httptest.NewServer(s.handler())
	s.URL = s.http.URL
	return s
}

// Close ends the work that is under way and waits for it, and the server.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.closing)
	for _, t := range s.tasks {
		t.stop()
	}
	s.mu.Unlock()
	s.works.Wait()
	s.http.CloseClientConnections()
	s.http.Close()
}

// Client makes a client of the server.
func (s *Server) Client() *client.Client {
	c, err := client.New(s.URL, s.Key, nil)
	if err != nil {
		panic(err) // our own address and key
	}
	return c
}

// Calls are the runs that were begun so far, of the kinds given or of all, in
// their order: each would have been a call to the model.
func (s *Server) Calls(kinds ...string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Call
	for _, c := range s.calls {
		if len(kinds) == 0 || slices.Contains(kinds, c.Kind) {
			out = append(out, c)
		}
	}
	return out
}

// Refuse has the next n requests answered with e, and nothing done. A client
// tries again after what may pass: api.Errorf(api.CodeUnavailable, "away").
func (s *Server) Refuse(n int, e *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.refuse = append(s.refuse, e)
	}
}

// LoseAnswers has the next n requests that change something done, and their
// connections cut before the answer.
func (s *Server) LoseAnswers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose += n
}

// Settle ends the run of a task whose kind has no Do. It is an error when there
// is no such task or it does not run.
func (s *Server) Settle(id string, o Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byID[id]
	switch {
	case t == nil:
		return fmt.Errorf("clienttest: there is no task %s", id)
	case t.kind.Do != nil:
		return fmt.Errorf("clienttest: the kind %s has a Do, which settles its tasks", t.Kind)
	case t.State != api.Running:
		return fmt.Errorf("clienttest: the task %s is %s", id, t.State)
	}
	t.settle(o)
	s.freed(t)
	s.moved()
	return nil
}

// trouble is what a test has asked for to happen to the next request.
func (s *Server) trouble(r *http.Request) (refuse *api.Error, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refuse) > 0 {
		refuse, s.refuse = s.refuse[0], s.refuse[1:]
		return refuse, false
	}
	if s.lose > 0 && r.Method != http.MethodGet {
		s.lose--
		lose = true
	}
	return nil, lose
}

// moved wakes whoever waits for a task. s.mu is held.
func (s *Server) moved() {
	close(s.changed)
	s.changed = make(chan struct{})
}
