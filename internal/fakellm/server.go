package fakellm

import (
	"net/http/httptest"
)

// Server is a Handler that listens on a free port of the loopback address, for tests.
type Server struct {
	*Handler
	http *httptest.Server
}

// New starts a Server.
func New() *Server {
	h := NewHandler()
	return &Server{Handler: h, http: httptest.NewServer(h)}
}

// URL is the address up to and including the version: what base_url takes.
func (s *Server) URL() string { return s.http.URL + "/v1" }

// Root is the address of the server, below which /_fake/ stands.
func (s *Server) Root() string { return s.http.URL }

// Close ends the calls that run, cuts the connections and stops listening.
func (s *Server) Close() {
	s.Handler.Close()
	s.http.CloseClientConnections()
	s.http.Close()
}
