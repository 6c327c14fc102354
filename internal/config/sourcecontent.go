package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"time"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/canon"
	"github.com/onefold-dev/onefold/internal/telemetry"
)

// documentKey is the word for a key made of the event's content.
const documentKey = "document"

// sourceContent reads what an event becomes: key, input, occurred_at, and tries them with the sample.
func (d *decoder) sourceContent(m *mapping, s *Source, given bool) {
	if v := m.take("key", tString); v != nil {
		if s.DocumentKey = v.s == documentKey; !s.DocumentKey {
			s.key = d.compileKey(v, join(m.path, "key"))
		}
	} else if given && !m.has("key") && s.Scheme == SchemeHMAC {
		m.fail("key", `add key: "{{.id}}" with the event's own id, or key: document`, "an hmac source has no id that it is known by")
	}
	if v := m.take("input", tObject, tString); v != nil {
		s.input = d.compileTree(v, join(m.path, "input"), nil)
	}
	if v := m.take("occurred_at", tString); v != nil {
		s.occurred = d.compileLeaf(v, join(m.path, "occurred_at"), modePlain, nil)
	}
	sample := m.take("sample", tObject)
	if sample == nil {
		if m.has("key") && !s.DocumentKey || m.has("input") || m.has("occurred_at") {
			if !m.has("sample") {
				m.fail("sample", "add sample: with an event as the source sends it", "templates are tried with a sample, and there is none")
			}
		}
		return
	}
	d.trySource(s, sample.appendJSON(nil))
}

func (d *decoder) trySource(s *Source, event []byte) {
	for _, try := range []func() error{
		func() error { _, err := s.Input(event); return err },
		func() error { _, err := s.OccurredAt(event); return err },
		func() error {
			if s.key == nil {
				return nil
			}
			_, err := s.Key(event, nil, "")
			return err
		},
	} {
		if err := try(); err != nil {
			d.sampleProblem(d.pos[s.path+".sample"], s.path+".sample", err)
		}
	}
}

// compileKey compiles a key template. Its text may only be words and fields: with an if, or a value put in where a field
// is missing, different events could come to one key; and a key must be the same however often and whenever the event
// is delivered.
func (d *decoder) compileKey(v *value, path string) *leaf {
	l := d.compileLeaf(v, path, modeKey, nil)
	if l == nil {
		return nil
	}
	fail := func(message, fix string) *leaf {
		d.add(v.pos, path, message, fix)
		return nil
	}
	if l.t == nil {
		return fail("the key is the same for all events", `use fields of the event: key: "{{.type}}:{{.data.id}}"`)
	}
	fields := 0
	for _, n := range l.t.Root.Nodes {
		switch n := n.(type) {
		case *parse.TextNode:
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				return fail("a key template cannot have variables", "write the fields themselves")
			}
			bad, paths := keyPipe(n.Pipe)
			if bad != "" {
				return fail("a key template cannot use "+bad, "use fields that every event has; the functions lower, upper, trim and json are allowed")
			}
			for _, p := range paths {
				if arrival(p) {
					return fail("."+strings.Join(p, ".")+" changes with each delivery of one event", "use the event's own id")
				}
			}
			fields += len(paths)
		default:
			return fail("a key template cannot have if, with or range", "use fields that every event has, or another source for the other events")
		}
	}
	if fields == 0 {
		return fail("the key is the same for all events", `use fields of the event: key: "{{.type}}:{{.data.id}}"`)
	}
	return l
}

// keyFuncs are the functions a key may use: they lose nothing that tells events apart but case and blanks. _emit is
// what prints.
var keyFuncs = []string{"lower", "upper", "trim", "json", emitName}

func keyPipe(pipe *parse.PipeNode) (bad string, paths [][]string) {
	for _, c := range pipe.Cmds {
		for _, arg := range c.Args {
			switch n := arg.(type) {
			case *parse.FieldNode:
				paths = append(paths, n.Ident)
			case *parse.IdentifierNode:
				if !slices.Contains(keyFuncs, n.Ident) {
					if n.Ident == "_lookup" {
						return "default or has", nil
					}
					return n.Ident, nil
				}
			case *parse.PipeNode:
				b, p := keyPipe(n)
				if b != "" {
					return b, nil
				}
				paths = append(paths, p...)
			default:
				return "a fixed value or the whole event", nil
			}
		}
	}
	return "", paths
}

// arrivals are last names of fields that tell of the delivery and not of the event.
var arrivals = []string{
	"attempt", "attempts", "attempt_number", "attempt_count", "delivered_at", "delivery_attempt", "delivery_id", "delivery_time", "now", "received_at",
	"redelivered", "redelivery", "request_id", "retries", "retry", "retry_count", "retry_number", "sent_at",
}

func arrival(path []string) bool {
	return slices.Contains(arrivals, strings.ToLower(path[len(path)-1]))
}

// SourceKey is the key of the HMAC of a secret: what stands after whsec_ in base64 for standard-webhooks, the text itself
// for the others.
func SourceKey(scheme Scheme, s telemetry.Secret) ([]byte, error) {
	text := s.Reveal()
	if scheme != SchemeStandard {
		return []byte(text), nil
	}
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimPrefix(text, "whsec_"), "="))
	if err != nil {
		return nil, errors.New("is not base64, as Standard Webhooks has it (whsec_...)")
	}
	return b, nil
}

// Key is the idempotency key of an event: of its content where the source says so, else id, which the scheme carries.
// input is what [Source.Input] gave. What is no key as it stands (too long, not visible ASCII) is replaced by its hash.
// The error is an *api.Error that quotes no data.
func (s *Source) Key(event, input []byte, id string) (string, error) {
	key := id
	switch {
	case s.DocumentKey:
		sum, err := canon.InputHash(input)
		if err != nil {
			return "", api.Errorf(api.CodeInvalidJSON, "the event is not a JSON value that can be hashed")
		}
		return "sha256-" + hex.EncodeToString(sum[:]), nil
	case s.key != nil:
		text, err := s.key.text1(&scope{doc: event})
		if err != nil {
			return "", api.Errorf(api.CodeNoSourceKey, "the key cannot be made of this event: %s", err)
		}
		key = text
	}
	if strings.TrimSpace(key) == "" {
		return "", api.Errorf(api.CodeNoSourceKey, "the delivery carries no id")
	}
	if canon.CheckKey(key) != nil {
		sum := sha256.Sum256([]byte(key))
		return "sha256-" + hex.EncodeToString(sum[:]), nil
	}
	return key, nil
}

// Input is what the event becomes: the source's input with its texts rendered, or the event as it came.
func (s *Source) Input(event []byte) ([]byte, error) {
	if s.input == nil {
		return event, nil
	}
	out, err := s.input.append(nil, &scope{doc: event})
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidInput, "the input cannot be made of this event: %s", err)
	}
	return out, nil
}

// OccurredAt is the event's own time, nil where the source names none: RFC 3339, or seconds since 1970.
func (s *Source) OccurredAt(event []byte) (*time.Time, error) {
	if s.occurred == nil {
		return nil, nil
	}
	text, err := s.occurred.text1(&scope{doc: event})
	if err != nil {
		return nil, api.Errorf(api.CodeInvalidInput, "occurred_at cannot be made of this event: %s", err)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return &t, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < 1<<36 {
		t := time.Unix(n, 0).UTC()
		return &t, nil
	}
	return nil, api.Errorf(api.CodeInvalidInput, "occurred_at of this event is neither RFC 3339 nor seconds since 1970")
}
