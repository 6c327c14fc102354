package telemetry

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

const redacted = "[redacted]"

// Secret is a text that cannot be printed: every way of formatting, encoding or logging it gives "[redacted]".
// The text sits behind a pointer because fmt reads the unexported fields of a struct without asking their methods;
// there it finds an address.
type Secret struct{ p *string }

// NewSecret returns a secret holding s.
func NewSecret(s string) Secret { return Secret{p: &s} }

// Reveal returns the text. Call it where the text is used, and keep the result nowhere.
func (s Secret) Reveal() string {
	if s.p == nil {
		return ""
	}
	return *s.p
}

// Empty reports whether there is no text.
func (s Secret) Empty() bool { return s.Reveal() == "" }

// Equal compares in constant time.
func (s Secret) Equal(t Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(t.Reveal())) == 1
}

func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redacted) }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }

// maxSecretFile bounds a secret file; private keys and long tokens stay far below it.
const maxSecretFile = 64 << 10

// SecretSource is where a secret comes from: an environment variable or a file. Printing it tells the place.
type SecretSource struct {
	env, file string
	getenv    func(string) string

	mu   sync.Mutex
	last Secret
	err  error
}

// SecretFromEnv returns a source that reads the environment variable name through getenv.
func SecretFromEnv(name string, getenv func(string) string) *SecretSource {
	return &SecretSource{env: name, getenv: getenv}
}

// SecretFromFile returns a source that reads the file at path each time, so that a rotated secret is seen at the next
// use. Line breaks at its end are no part of the secret.
func SecretFromFile(path string) *SecretSource { return &SecretSource{file: path} }

// SecretFromValue returns a source that always gives s. For tests and for secrets kept elsewhere.
func SecretFromValue(s Secret) *SecretSource { return &SecretSource{last: s} }

// Get returns the secret as it is now. A file that could be read before and cannot be read now gives the value it had
// (a rotation replaces it in two steps); [SecretSource.Err] then tells why. A nil source gives the empty secret.
func (s *SecretSource) Get() (Secret, error) {
	if s == nil {
		return Secret{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == "" && s.file == "" {
		return s.last, nil
	}
	v, err := s.read()
	s.err = err
	if err == nil {
		s.last = v
		return v, nil
	}
	if s.last.Empty() {
		return Secret{}, err
	}
	return s.last, nil
}

// Err returns why the last Get could not read the source, or nil.
func (s *SecretSource) Err() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Place names the source: "environment variable X" or "file X".
func (s *SecretSource) Place() string {
	switch {
	case s == nil:
		return "nowhere"
	case s.env != "":
		return "environment variable " + s.env
	case s.file != "":
		return "file " + s.file
	}
	return "a fixed value"
}

func (s *SecretSource) String() string               { return s.Place() }
func (s *SecretSource) GoString() string             { return s.Place() }
func (s *SecretSource) LogValue() slog.Value         { return slog.StringValue(s.Place()) }
func (s *SecretSource) MarshalText() ([]byte, error) { return []byte(s.Place()), nil }

func (s *SecretSource) read() (Secret, error) {
	if s.env != "" {
		v := strings.TrimRight(s.getenv(s.env), "\r\n")
		return checkSecret(v, s.Place(), "is not set")
	}
	f, err := os.Open(s.file)
	if err != nil {
		return Secret{}, fmt.Errorf("%s cannot be read: %w", s.Place(), reason(err))
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return Secret{}, fmt.Errorf("%s cannot be read: %w", s.Place(), reason(err))
	}
	if len(b) > maxSecretFile {
		return Secret{}, fmt.Errorf("%s is larger than %d bytes", s.Place(), maxSecretFile)
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	return checkSecret(string(bytes.TrimRight(b, "\r\n")), s.Place(), "is empty")
}

// reason is err without the path, which the message names already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// checkSecret refuses what could not be sent in a header: a secret with a line break inside is two secrets, or a file
// of another kind.
func checkSecret(v, place, whenEmpty string) (Secret, error) {
	switch {
	case v == "":
		return Secret{}, errors.New(place + " " + whenEmpty)
	case !utf8.ValidString(v):
		return Secret{}, errors.New(place + " is not UTF-8 text")
	case strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return Secret{}, errors.New(place + " holds a line break or control character inside the secret")
	}
	return NewSecret(v), nil
}
