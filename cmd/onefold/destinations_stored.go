package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/seal"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// book opens the database's destinations. What seals comes from the environment, as for api and worker.
func (f *dbFlags) book(ctx context.Context, e *env, do func(*destination.Book) error) error {
	pool, err := f.open(ctx, e)
	if err != nil {
		return err
	}
	defer pool.Close()
	o := destination.Opts{Config: &config.Config{}, Pool: pool, Log: slog.New(slog.DiscardHandler)}
	switch file := e.getenv("ONEFOLD_SEAL_KEYS_FILE"); {
	case file != "":
		o.Keys = telemetry.SecretFromFile(file)
	case e.getenv("ONEFOLD_SEAL_KEYS") != "":
		o.Keys = telemetry.SecretFromValue(telemetry.NewSecret(e.getenv("ONEFOLD_SEAL_KEYS")))
	}
	b := destination.New(o)
	if err := b.Refresh(ctx); err != nil {
		return dbProblem(err)
	}
	return do(b)
}

type destinationsShowCmd struct {
	dbFlags
	Name string `arg:"" help:"The destination."`
}

func (c *destinationsShowCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		all, err := b.List(ctx, b.Pool)
		if err != nil {
			return dbProblem(err)
		}
		for _, d := range all {
			if d.Name == c.Name {
				return showDestination(e, d)
			}
		}
		return usage("there is no destination "+strconv.Quote(c.Name), "See onefold destinations list.")
	})
}

func showDestination(e *env, d api.Destination) error {
	if e.json {
		return e.object(d)
	}
	rows := [][]string{
		{"name", clean(d.Name)},
		{"state", string(d.State)},
		{"why", clean(d.Reason)},
		{"from", string(d.Source)},
		{"url", clean(d.URL)},
		{"repeat", d.Repeat},
		{"tenants", clean(strings.Join(d.Tenants, ", "))},
		{"problem", clean(d.Problem)},
		{"effects", fmt.Sprintf("%d waiting, %d delivering, %d held, %d unknown", d.Waiting, d.Delivering, d.Held, d.Unknown)},
	}
	for _, s := range d.Secrets {
		text := fmt.Sprintf("%s since %s, signed %d deliveries", clean(s.ID), e.when(s.Since), s.Deliveries)
		if s.RetiresAt != nil {
			text += ", signs until " + e.when(*s.RetiresAt)
		}
		if s.Old {
			text += "; older than 90 days: rotate it"
		}
		rows = append(rows, []string{"secret", text})
	}
	kept := rows[:0]
	for _, r := range rows {
		if r[1] != "" {
			kept = append(kept, r)
		}
	}
	return e.rows(kept, nil)
}

type destinationsTestCmd struct {
	dbFlags
	Name string `arg:"" help:"The destination."`
	To   string `placeholder:"ADDRESS" help:"Who gets the mail, at a mail server."`
}

func (c *destinationsTestCmd) Help() string {
	return `A worker sends one signed event of type onefold.test, from where effects leave. No effect, gate or breaker counts it.
The exit status is 0 only where the receiver accepted it.`
}

func (c *destinationsTestCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		t, err := b.Test(ctx, destination.Act{Name: c.Name, Actor: actor()}, c.To)
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			if err := e.object(t); err != nil {
				return err
			}
		} else if err := e.print(testText(t)); err != nil {
			return err
		}
		if !t.Accepted {
			return &problem{code: exitError, message: "the test was not accepted", fix: "See onefold destinations show " + c.Name + "."}
		}
		return nil
	})
}

func testText(t *api.DestinationTest) string {
	what := clean(t.Class)
	if t.Status != 0 {
		what += " " + strconv.Itoa(t.Status)
	}
	text := fmt.Sprintf("%s after %d ms", what, t.TotalMS)
	if len(t.SignedBy) > 0 {
		text += ", signed by " + clean(strings.Join(t.SignedBy, ", "))
	}
	if t.Message != "" {
		text += "\n" + clean(t.Message)
	}
	if t.Reply != "" {
		text += "\n" + clean(t.Reply)
	}
	return text + "\n"
}

type destinationsPutCmd struct {
	dbFlags
	Name   string `arg:"" help:"The destination."`
	File   string `short:"f" default:"-" help:"A JSON object: the fields of a destination in onefold.yaml, and secret and auth in place of their sources; - is stdin."`
	Reason string `help:"Why, for the audit."`
}

func (c *destinationsPutCmd) Run(ctx context.Context, e *env) error {
	var body []byte
	var err error
	if c.File == "-" {
		body, err = io.ReadAll(e.stdin)
	} else {
		body, err = os.ReadFile(c.File)
	}
	if err != nil {
		return usage("the file cannot be read: "+telemetry.ScrubError(err), "Give -f FILE, or the JSON on stdin.")
	}
	return c.book(ctx, e, func(b *destination.Book) error {
		p, err := b.Put(ctx, destination.Act{Name: c.Name, Actor: actor(), Reason: c.Reason}, body)
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			return e.object(map[string]any{"name": c.Name, "created": p.Created, "secret": p.Secret.Reveal()})
		}
		text := c.Name + " is changed; every process knows within a second\n"
		if p.Created {
			text = c.Name + " is made; every process knows within a second\n"
		}
		return e.print(text + secretText(p.Secret))
	})
}

func secretText(s telemetry.Secret) string {
	if s.Empty() {
		return ""
	}
	return "its signing secret, shown this once: " + s.Reveal() + "\n"
}

type destinationsRotateCmd struct {
	dbFlags
	Name    string        `arg:"" help:"The destination."`
	Overlap time.Duration `default:"168h" help:"How long the former secrets sign, too; 0s ends them at once."`
	Reason  string        `help:"Why, for the audit."`
}

func (c *destinationsRotateCmd) Help() string {
	return `The new secret is made and shown once; ONEFOLD_NEW_SECRET gives one instead. A destination of onefold.yaml is rotated there:
the new secret in secret_file, the old one in previous_secret_file.`
}

func (c *destinationsRotateCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		r, err := b.Rotate(ctx, destination.Act{Name: c.Name, Actor: actor(), Reason: c.Reason}, e.getenv("ONEFOLD_NEW_SECRET"), c.Overlap)
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			return e.object(api.SecretRotated{Destination: c.Name, ID: r.ID, Secret: r.Secret.Reveal(), Overlap: c.Overlap.String()})
		}
		return e.print(fmt.Sprintf("%s signs with secret %s; the former ones sign, too, for %s\n", c.Name, r.ID, c.Overlap) + secretText(r.Secret))
	})
}

type destinationsDeleteCmd struct {
	dbFlags
	Name   string `arg:"" help:"The destination."`
	Reason string `required:"" help:"Why, for the audit."`
}

func (c *destinationsDeleteCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		if err := b.Delete(ctx, destination.Act{Name: c.Name, Actor: actor(), Reason: c.Reason}); err != nil {
			return dbProblem(err)
		}
		return e.print(c.Name + " is deleted\n")
	})
}

type destinationsRewrapCmd struct{ dbFlags }

func (c *destinationsRewrapCmd) Help() string {
	return `To retire a key: put a new one first in ONEFOLD_SEAL_KEYS of every process, rewrap, then take the old one away.`
}

func (c *destinationsRewrapCmd) Run(ctx context.Context, e *env) error {
	return c.book(ctx, e, func(b *destination.Book) error {
		done, left, err := b.Rewrap(ctx, destination.Act{Actor: actor(), Reason: "rewrap"})
		if err != nil {
			return dbProblem(err)
		}
		if e.json {
			return e.object(map[string]int{"rewrapped": done, "unopened": left})
		}
		if err := e.print(fmt.Sprintf("%d secrets and addresses are sealed anew\n", done)); err != nil || left == 0 {
			return err
		}
		return &problem{code: exitError, message: fmt.Sprintf("%d do not open", left), fix: "Add the key they were sealed under back to the ring."}
	})
}

type destinationsKeyCmd struct {
	ID string `arg:"" optional:"" help:"The key's name in the ring; today's date by default."`
}

func (c *destinationsKeyCmd) Run(_ context.Context, e *env) error {
	id := c.ID
	if id == "" {
		id = time.Now().UTC().Format("2006-01-02")
	}
	key := seal.NewKey(id)
	if _, err := seal.Parse(telemetry.NewSecret(key)); err != nil {
		return usage("that is no name of a key", "Use letters, digits and -.")
	}
	return e.print(key + "\n")
}
