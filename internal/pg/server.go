package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// superuser is the role that owns the clusters made here.
const superuser = "postgres"

// startPatience bounds one start, crash recovery included.
const startPatience = 2 * time.Minute

// Opts says what cluster Start is to start.
type Opts struct {
	// Dir is the folder the cluster lives in, for it alone: the cluster is made
	// there when there is none and started again when there is. Run as root, the
	// folder is opened to the group of Postgres' user. Required unless Ephemeral.
	Dir string

	// Settings are server parameters (postgresql.conf names) that go over the
	// defaults. fsync and synchronous_commit stay on unless switched off here, and
	// onefold refuses to run on a server where they are off.
	Settings map[string]string

	// Log gets the server's log and notes about what Start decided. May be nil.
	// It is written to from another goroutine.
	Log io.Writer

	// Ephemeral makes a cluster for this run only, in memory where the system has
	// a file system for that, and removes it when it is closed. Dir must be empty.
	Ephemeral bool
}

// Server is a running cluster of ours. Its methods may be called from several
// goroutines.
type Server struct {
	// Set by Start, not changed after it.
	folder   *folder
	binDir   string
	password string
	port     int
	opts     Opts
	watcher  *watcher
	detach   func() bool // stops waiting for the end of Start's context

	proc atomic.Pointer[process] // the newest run; written under mu

	mu     sync.Mutex // starting and stopping, one at a time
	closed bool
}

// Start starts a cluster and returns when it accepts connections. The cluster
// lives until Close, or until ctx ends, which closes it too: ctx is its life, not
// a time limit for starting. The error wraps ErrMissing when no Postgres is
// installed.
func Start(ctx context.Context, o Opts) (*Server, error) {
	s := &Server{opts: o}
	var err error
	switch {
	case o.Ephemeral && o.Dir != "":
		return nil, errors.New("start Postgres: an ephemeral cluster chooses its own folder")
	case o.Ephemeral:
		s.folder, err = ephemeralFolder(s.note)
	case o.Dir == "":
		return nil, errors.New("start Postgres: no data folder given")
	default:
		s.folder, err = openFolder(o.Dir, s.note)
	}
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.detach = context.AfterFunc(ctx, func() { _ = s.close() })
	return s, nil
}

// open does what can fail after the folder is ours.
func (s *Server) open(ctx context.Context) error {
	name, remove := "INT", ""
	if s.folder.owner {
		name, remove = "QUIT", s.folder.path
	}
	var err error
	if s.watcher, err = startWatcher(name, remove, filepath.Join(s.folder.data(), "postmaster.pid")); err != nil {
		return err
	}
	if s.binDir, err = s.folder.init(ctx); err != nil {
		return err
	}
	if s.password, err = s.folder.readFile("password"); err != nil {
		return err
	}
	if err := clearStale(ctx, s.folder, s.note); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startAnywhere(ctx)
}

// startAnywhere starts the server on the port it had the last time, so that URLs
// people noted down stay good, or else on a free one.
func (s *Server) startAnywhere(ctx context.Context) error {
	last, _ := s.folder.readFile("port") // none yet is no error
	var err error
	if s.port, err = strconv.Atoi(last); err != nil {
		s.port = freePort()
	}
	for range 20 {
		if err = s.launch(ctx); err == nil {
			return s.folder.writeFile("port", strconv.Itoa(s.port))
		}
		if portFree(s.port) {
			return err // the port was not what was wrong
		}
		s.port = freePort()
	}
	return err
}

// errEnded is why launch fails when the server ends instead of answering.
var errEnded = errors.New("it ended at once")

// launch starts the server on its port and waits until it answers. The caller holds mu.
func (s *Server) launch(ctx context.Context) error {
	death := syscall.SIGINT
	if s.folder.owner {
		death = syscall.SIGQUIT // its data dies with it: no need for a last checkpoint
	}
	p, err := startProcess(s.binDir, s.folder, s.args(), death, s.opts.Log)
	if err != nil {
		return err
	}
	s.proc.Store(p)

	limit, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("no answer within %v", startPatience))
	defer cancel()
	running, end := context.WithCancelCause(limit)
	defer end(nil)
	go func() {
		<-p.done
		end(errEnded)
		// A caller may drop the Server and rely on its context. Were it collected
		// meanwhile, the watcher's pipe and the folder's lock would close with it.
		runtime.KeepAlive(s)
	}()

	if err := s.watcher.watch(p.pid); err != nil {
		return errors.Join(err, p.stop(death))
	}
	if err := poll(running, func() bool { return s.answers(running) }); err != nil {
		return errors.Join(fmt.Errorf("start Postgres in %s: %w\n%s", s.folder.path, err, p.tail), p.stop(death))
	}
	return nil
}

func (s *Server) answers(ctx context.Context) bool {
	conn, err := pgconn.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

func (s *Server) args() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "", // a path to a socket may be too long for the kernel
		"cluster_name":            "onefold",
		"max_connections":         "200",
		"jit":                     "off", // compiling costs more than our short statements
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if s.folder.owner {
		// In its folder, so that nothing stays in /dev/shm after a kill -9.
		settings["dynamic_shared_memory_type"] = "mmap"
	}
	maps.Copy(settings, s.opts.Settings)
	args := []string{"-D", s.folder.data(), "-p", strconv.Itoa(s.port)}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// URL is the address of a database of the cluster, as its superuser. It stays
// the same over Stop and Restart.
func (s *Server) URL(db string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + db, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Dir is the folder the cluster lives in. It is not always the one asked for: see
// the note in Opts.Log.
func (s *Server) Dir() string { return s.folder.path }

// PID is the process id of the server, also after it has ended.
func (s *Server) PID() int { return s.proc.Load().pid }

// Done is closed when the server process running now has ended, asked for or not.
func (s *Server) Done() <-chan struct{} { return s.proc.Load().done }

// Stop stops the server and keeps its data, also those of an ephemeral one, for
// Restart. Mode "fast" ends all sessions and writes a checkpoint; "immediate" is a
// crash, with recovery at the next start. Stopping a stopped server is no error.
func (s *Server) Stop(mode string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(mode)
}

func (s *Server) stop(mode string) error {
	var sig syscall.Signal
	switch mode {
	case "fast":
		sig = syscall.SIGINT
	case "immediate":
		sig = syscall.SIGQUIT
	default:
		return fmt.Errorf("stop Postgres: unknown mode %q: use fast or immediate", mode)
	}
	p := s.proc.Load()
	if p == nil {
		return nil
	}
	if err := p.stop(sig); err != nil {
		return err
	}
	return s.watcher.watch(0)
}

// Restart starts the server again on the same port and the same data, after Stop
// or a crash; one that still runs is stopped fast before.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart Postgres: it has been closed")
	}
	if err := s.stop("fast"); err != nil {
		return err
	}
	if err := clearStale(ctx, s.folder, s.note); err != nil {
		return err
	}
	// After a kill -9 sessions may run on for a moment and keep the old memory,
	// which a new server must not share.
	var err error
	for range 5 {
		if err = s.launch(ctx); !errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
	return err
}

// Close stops the server, immediately if it is ephemeral and fast otherwise,
// removes an ephemeral one's data, and gives the folder free. It may be called
// again.
func (s *Server) Close() error {
	if s.detach != nil {
		s.detach()
	}
	return s.close()
}

func (s *Server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	mode := "fast"
	if s.folder.owner {
		mode = "immediate"
	}
	if err := s.stop(mode); err != nil {
		return err // the watcher stays: it will try again when we end
	}
	s.closed = true
	if s.watcher != nil {
		s.watcher.end()
	}
	return s.folder.release()
}

func (s *Server) note(format string, args ...any) {
	if s.opts.Log != nil {
		fmt.Fprintf(s.opts.Log, "onefold: "+format+"\n", args...)
	}
}

// Ports are taken from below the range out of which systems number outgoing
// connections and listeners on port 0 (Linux: 32768 and up, macOS: 49152), so
// that nobody gets the port of a server that is stopped for a moment.
const firstPort, lastPort = 20000, 32767

func freePort() int {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if portFree(port) {
			return port
		}
	}
	return firstPort // then launch fails with what Postgres says about it
}

func portFree(port int) bool {
	if port <= 0 {
		return false
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
