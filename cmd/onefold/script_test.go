package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/onefold-dev/onefold/internal/pg/pgtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"onefold": main})
}

// TestScripts runs the sessions of testdata/script, each against a server of
// its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Cmds: commands, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			s := newServer()
			e.Defer(s.Close)
			e.Values["server"] = s
			web := newWebPage()
			e.Defer(web.Close)
			e.Vars = append(e.Vars, noSleep, "ONEFOLD_URL="+s.URL, "ONEFOLD_API_KEY="+fakeKey, "READ_ONLY_KEY="+readOnly,
				"NOBODY="+nobody(), "WEB_PAGE="+web.URL)
			return nil
		},
	})
}

// TestDatabaseScripts runs the sessions of testdata/db, each on an empty
// database of its own.
func TestDatabaseScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/db", Cmds: commands, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := pgtest.Empty(t)
			name := db.Role(t)
			e.Vars = append(e.Vars, noSleep, "ONEFOLD_DATABASE_URL="+db.URL(), "NOBODY="+nobody(),
				"RUNTIME_ROLE="+name, "RUNTIME_URL="+db.As(t, name, "hush-hush"))
			return nil
		},
	})
}

// noSleep: a program built with -race waits a second at its end otherwise.
const noSleep = "GORACE=atexit_sleep_ms=0"

// nobody is an address where nobody listens: a port that was free.
func nobody() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newWebPage is a server that is no onefold.
func newWebPage() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<h1>Nothing here</h1>"))
	}))
}

var commands = map[string]func(*testscript.TestScript, bool, []string){
	"exits":    exits,
	"setjson":  setjson,
	"verbatim": verbatim,
	"polled":   polled,
	"sql":      sql,
	"counted":  counted,
	"held":     held,
}

// exits CODE COMMAND ...: the command ends with that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("got exit code %d, want %d", got, want)
	}
}

// setjson NAME FIELD: the environment variable becomes the field of the JSON
// that the last command printed.
func setjson(ts *testscript.TestScript, _ bool, args []string) {
	var v map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &v))
	if v[args[1]] == nil {
		ts.Fatalf("there is no %s in the output", args[1])
	}
	ts.Setenv(args[0], fmt.Sprint(v[args[1]]))
}

// verbatim FILE: the last output holds the file's bytes, its last line end
// apart.
func verbatim(ts *testscript.TestScript, neg bool, args []string) {
	want := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
	if strings.Contains(ts.ReadFile("stdout"), want) == neg {
		ts.Fatalf("the output holds %s: %t", args[0], neg)
	}
}

// polled ID: waits until someone waits for that task.
func polled(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value("server").(*server)
	s.mu.Lock()
	c := s.polls[args[0]]
	s.mu.Unlock()
	if c == nil {
		ts.Fatalf("there is no task %s", args[0])
	}
	<-c
}
