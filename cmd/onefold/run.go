package main

//go:generate go test . -run "TestCLIDoc|TestMetricsDoc" -update

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/onefold-dev/onefold/client"
)

const defaultURL = "http://127.0.0.1:8080"

// cli is the whole grammar; each command stands in the file of its name.
type cli struct {
	Submit   submitCmd   `cmd:"" group:"tasks" help:"Submit one task."`
	Get      getCmd      `cmd:"" group:"tasks" help:"Show a task as it stands."`
	Wait     waitCmd     `cmd:"" group:"tasks" help:"Wait until tasks are settled; the exit code says how they ended."`
	List     listCmd     `cmd:"" group:"tasks" help:"List tasks, newest first."`
	Result   resultCmd   `cmd:"" group:"tasks" help:"Print a task's result, byte for byte."`
	Input    inputCmd    `cmd:"" group:"tasks" help:"Print a task's input, byte for byte."`
	Attempts attemptsCmd `cmd:"" group:"tasks" help:"Show the calls that were made for a task, and what is known of each."`
	Timeline timelineCmd `cmd:"" group:"tasks" help:"Tell a task's story: who asked, what was called, what left the building."`
	Diagnose diagnoseCmd `cmd:"" group:"tasks" help:"Say which known way of doing something twice a task looks like, with the evidence."`
	Cancel   cancelCmd   `cmd:"" group:"tasks" help:"Cancel a task."`
	Retry    retryCmd    `cmd:"" group:"tasks" help:"Run a failed or unknown task again."`
	Erase    eraseCmd    `cmd:"" group:"tasks" help:"Erase a task's input, result and replies; key and outcome stay."`
	Resolve  resolveCmd  `cmd:"" group:"tasks" help:"Decide what became of a task whose outcome is unknown."`

	Batch batchCmd `cmd:"" group:"tasks" help:"Run a file of tasks."`

	Review        reviewCmd        `cmd:"" group:"operate" help:"What waits for a person: look, and decide."`
	Audit         auditCmd         `cmd:"" group:"operate" help:"Look for what is there twice or missing, directly on the database."`
	MarkDuplicate markDuplicateCmd `cmd:"" group:"operate" help:"Say that a task repeats another one."`
	Compensate    compensateCmd    `cmd:"" group:"operate" help:"Undo what a task did, by a task of another kind; once, however often it is run."`
	Usage         usageCmd         `cmd:"" group:"operate" help:"Report calls, tokens, cost, and what folded duplicates saved."`
	Keys          keysCmd          `cmd:"" group:"operate" help:"API keys, directly on the database."`
	Tenants       tenantsCmd       `cmd:"" group:"operate" help:"Tenants and the weights of their shares, directly on the database."`
	Providers     providersCmd     `cmd:"" group:"operate" help:"Providers and their gates, directly on the database."`
	Hold          holdCmd          `cmd:"" group:"operate" help:"Stop submits, claims or retries of a tenant, kind, provider or destination."`
	Release       releaseCmd       `cmd:"" group:"operate" help:"Take a hold away."`
	Holds         holdsCmd         `cmd:"" group:"operate" help:"List what operators stopped."`
	Destinations  destinationsCmd  `cmd:"" group:"operate" help:"Where effects go: list, hold, release, directly on the database."`
	Migrate       migrateCmd       `cmd:"" group:"operate" help:"Bring the database schema to the newest version."`
	Doctor        doctorCmd        `cmd:"" group:"operate" help:"Look for what is wrong or soon will be, and say what to do."`
	Config        configCmd        `cmd:"" group:"operate" help:"Work with onefold.yaml."`
	Dev           devCmd           `cmd:"" group:"operate" help:"Run everything here, with a database of its own."`
	Fakellm       fakellmCmd       `cmd:"" group:"operate" help:"Run a scripted model server for tests."`
	Version       versionCmd       `cmd:"" group:"operate" help:"Print the version."`

	URL    string `name:"url" placeholder:"URL" help:"The server (ONEFOLD_URL, else ${url})."`
	Output string `short:"o" default:"text" placeholder:"text|json" help:"text for people, json for programs; of batch run and batch results the file that takes the results."`
}

const description = `A durable task queue for LLM calls: submit once, run once, poll the same answer.

ONEFOLD_URL names the server and ONEFOLD_API_KEY holds the API key.
` + exitHelp

// env is what a command may touch of the world.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	url            string
	json           bool
	file           string // where results go; stdout when empty
	tty            bool   // stdout is a terminal: relative times, hints
	color          bool
	errColor       bool
}

// run is the command line without the process around it. It returns the exit
// code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	e := &env{stdin: stdin, stdout: stdout, stderr: stderr, getenv: getenv, now: time.Now}
	plain := getenv("NO_COLOR") != "" || getenv("TERM") == "dumb"
	e.tty = terminal(stdout)
	e.color, e.errColor = e.tty && !plain, terminal(stderr) && !plain
	code, err := e.dispatch(ctx, args)
	if err != nil {
		code = e.report(ctx, err)
	}
	return code
}

// helped is panicked with by --help, which kong ends by leaving the process.
type helped struct{ code int }

func (e *env) dispatch(ctx context.Context, args []string) (code int, err error) {
	defer func() {
		if p := recover(); p != nil {
			h, ok := p.(helped)
			if !ok {
				panic(p)
			}
			code, err = h.code, nil
		}
	}()
	var c cli
	parser, err := newParser(ctx, e, &c)
	if err != nil {
		return 0, err
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if err != nil {
		return 0, e.badUsage(err)
	}
	e.url = c.URL
	if err := e.format(k.Command(), c.Output); err != nil {
		return 0, err
	}
	return 0, k.Run()
}

func newParser(ctx context.Context, e *env, c *cli) (*kong.Kong, error) {
	return kong.New(c, kong.Name("onefold"), kong.Description(description),
		kong.Vars{"url": defaultURL}, kong.Writers(e.stdout, e.stderr), kong.Exit(func(code int) { panic(helped{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{{Key: "tasks", Title: "Tasks:"}, {Key: "operate", Title: "Operation:"}}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(e))
}

// badUsage turns kong's error into ours, with where to read on.
func (e *env) badUsage(err error) error {
	more := "onefold --help"
	var pe *kong.ParseError
	if errors.As(err, &pe) && pe.Context != nil && pe.Context.Selected() != nil {
		more = pe.Context.Selected().FullPath() + " --help"
	}
	return usage(err.Error(), "See `%s`.", more)
}

// client makes the client from flags and environment.
func (e *env) client() (*client.Client, error) {
	url := e.url
	if url == "" {
		url = e.getenv("ONEFOLD_URL")
	}
	if url == "" {
		url = defaultURL
	}
	key := e.getenv("ONEFOLD_API_KEY")
	if key == "" {
		return nil, usage("ONEFOLD_API_KEY is not set",
			"Set it to a key made by `onefold keys create` (or the one that `onefold dev` prints): export ONEFOLD_API_KEY=of_...")
	}
	c, err := client.New(url, key, &client.Opts{MaxRetries: 3, UserAgent: "onefold-cli", OnRetry: e.retrying})
	if err != nil { // nothing was sent: what the environment or a flag says is wrong
		return nil, &problem{code: exitUsage, message: err.Error(), cause: err}
	}
	return c, nil
}

// retrying tells a person why nothing happens.
func (e *env) retrying(r client.Retried) {
	if !e.json {
		e.say("%s; trying again in %s", clean(r.Err.Error()), r.Wait.Round(100*time.Millisecond))
	}
}

// terminal says whether v is one. /dev/null passes for one, which harms nobody.
func terminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
