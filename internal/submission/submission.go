// Package submission decides what the body of a submit may say. It reads strictly,
// and its errors name fields, never what stands in them.
package submission

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
)

// Limits of a submit. The input's is the design's 8 MiB for a body.
const (
	MaxBytes    = 8 << 20
	maxMetadata = 16 << 10
	maxName     = 255
	maxAhead    = 366 * 24 * time.Hour
)

// Parsed is the body of a submit, checked; Input, Effects and
// Metadata are verbatim sub-slices of the body.
type Parsed struct {
	Keyed      bool    // the body names its key
	Key        *string // nil: it did not
	Kind       string
	Input      []byte
	Effects    []byte
	Metadata   []byte
	Priority   int16
	RunAt      *time.Time
	Deadline   *time.Time
	OccurredAt *time.Time
	Dedupe     string
	Budget     api.Budget
}

var fields = []string{"kind", "input", "effects", "priority", "run_at", "deadline", "occurred_at", "dedupe", "budget", "metadata"}

// Parse reads a body strictly, of a keyed request its key among the fields. It
// never decodes numbers of the input, and its errors name fields, not values.
func Parse(body []byte, keyed bool) (*Parsed, error) {
	if len(body) > MaxBytes {
		return nil, api.Errorf(api.CodeTooLarge, "the body has %d bytes, %d are allowed", len(body), MaxBytes)
	}
	members, err := canon.Members(body)
	if err != nil {
		return nil, CanonError(err)
	}
	p := &Parsed{Keyed: keyed, Priority: 4}
	for _, m := range members {
		if err := p.field(m.Name, m.Value); err != nil {
			return nil, err
		}
	}
	if p.Kind == "" {
		return nil, api.Errorf(api.CodeInvalidField, "kind is missing").WithField("kind").WithFix("Name one of the configured kinds, for example \"llm.chat\".")
	}
	if p.Input == nil {
		return nil, api.Errorf(api.CodeInvalidField, "input is missing").WithField("input").WithFix("Send the kind's input as a JSON value.")
	}
	return p, nil
}

func (p *Parsed) field(name string, v []byte) error {
	var err error
	switch name {
	case "key":
		if !p.Keyed {
			return unknownField(name)
		}
		var key string
		key, err = text(name, v, 0, 4*maxName) // its own grammar is checked with the header's
		p.Key = &key
	case "kind":
		p.Kind, err = text(name, v, 1, maxName)
	case "input":
		p.Input = v
	case "effects":
		if v[0] != '[' && string(v) != "null" {
			return wrong(name, "an array of effects")
		}
		if string(v) != "null" {
			p.Effects = v
		}
	case "metadata":
		p.Metadata, err = metadata(v)
	case "priority":
		p.Priority, err = priority(v)
	case "run_at":
		p.RunAt, err = moment(name, v)
	case "deadline":
		p.Deadline, err = moment(name, v)
	case "occurred_at":
		p.OccurredAt, err = moment(name, v)
	case "dedupe":
		p.Dedupe, err = text(name, v, 1, maxName)
	case "budget":
		p.Budget, err = budget(v)
	default:
		return unknownField(name)
	}
	return err
}

func unknownField(name string) error {
	e := api.Errorf(api.CodeUnknownField, "the body has a field that does not exist").WithField(Printable(name))
	if name == "key" {
		return e.WithFix("Send the key as the header Idempotency-Key; only items of a bulk and lines of a batch name it themselves.")
	}
	for _, f := range fields {
		if strings.EqualFold(f, name) {
			return e.WithFix("Write it as %q; names are case-sensitive.", f)
		}
	}
	return e.WithFix("Remove it. The fields are %s.", strings.Join(fields, ", "))
}

// Printable makes a caller's name safe to show.
func Printable(name string) string {
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	q := strconv.QuoteToASCII(name)
	return q[1 : len(q)-1]
}

func wrong(field, want string) error {
	return api.Errorf(api.CodeInvalidField, "%s is not %s", field, want).WithField(field)
}

func isNull(v []byte) bool { return string(v) == "null" }

func text(name string, v []byte, shortest, longest int) (string, error) {
	var s string
	if v[0] != '"' || json.Unmarshal(v, &s) != nil {
		return "", wrong(name, "a string")
	}
	if len(s) < shortest || len(s) > longest {
		return "", wrong(name, fmt.Sprintf("a string of %d to %d bytes", shortest, longest))
	}
	return s, nil
}

func moment(name string, v []byte) (*time.Time, error) {
	if isNull(v) {
		return nil, nil
	}
	s, err := text(name, v, 1, 64)
	if err != nil {
		return nil, wrong(name, "an RFC 3339 time")
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return nil, wrong(name, `an RFC 3339 time such as "2026-03-01T12:00:00Z"`)
	}
	t = t.UTC()
	return &t, nil
}

func priority(v []byte) (int16, error) {
	n, err := strconv.Atoi(string(v))
	if err != nil || n < 0 || n > 9 {
		return 0, wrong("priority", "a whole number from 0 (last) to 9 (first)")
	}
	return int16(n), nil
}

func metadata(v []byte) ([]byte, error) {
	if isNull(v) {
		return nil, nil
	}
	members, err := canon.Members(v)
	if err != nil {
		return nil, wrong("metadata", "an object of strings")
	}
	if len(v) > maxMetadata {
		return nil, wrong("metadata", "at most 16 KiB")
	}
	for _, m := range members {
		if len(m.Value) == 0 || m.Value[0] != '"' {
			return nil, wrong("metadata", "an object of strings")
		}
	}
	return v, nil
}

func budget(v []byte) (api.Budget, error) {
	if isNull(v) {
		return api.Budget{}, nil
	}
	var b api.Budget
	members, err := canon.Members(v)
	if err != nil {
		return b, wrong("budget", "an object with id and sends")
	}
	for _, m := range members {
		switch m.Name {
		case "id":
			if b.ID, err = text("budget.id", m.Value, 1, maxName); err != nil {
				return b, err
			}
		case "sends":
			if b.Sends, err = strconv.Atoi(string(m.Value)); err != nil || b.Sends < 1 || b.Sends > 1_000_000 {
				return b, wrong("budget.sends", "a whole number from 1 to 1000000")
			}
		default:
			return b, unknownField("budget." + m.Name)
		}
	}
	if b.ID == "" || b.Sends == 0 {
		return b, wrong("budget", "an object with id and sends")
	}
	return b, nil
}

// CanonError turns an error of strict parsing into the caller's error. Its
// codes are the same words.
func CanonError(err error) error {
	var c *canon.Error
	if !errors.As(err, &c) {
		return err
	}
	e := api.Errorf(api.Code(c.Code), "%s", c.Message)
	if c.Fix != "" {
		e.Fix = c.Fix
	}
	if c.Path != "" {
		e.Field = c.Path
	}
	return e
}

// WrongTimes says what is wrong with the times of a new task.
func WrongTimes(runAt, deadline *time.Time, now time.Time) error {
	if runAt != nil && runAt.After(now.Add(maxAhead)) {
		return wrong("run_at", "within the next 366 days")
	}
	if deadline == nil {
		return nil
	}
	if deadline.After(now.Add(2 * maxAhead)) {
		return wrong("deadline", "within the next two years")
	}
	if !deadline.After(now) || (runAt != nil && !deadline.After(*runAt)) {
		return wrong("deadline", "later than now and than run_at")
	}
	return nil
}
