package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// statement is an operator's SQL with its named arguments turned into $1, $2, ... A name that stands twice becomes two
// parameters: Postgres gives each parameter one type, and the same value may go into a text and a varchar column.
type statement struct {
	text string
	args [][]string // args[i] is the path behind $i+1: {"result", "total"}
}

// maxSQLArgs is what the Postgres protocol can carry.
const maxSQLArgs = 65535

// sqlRoots are the names an argument may begin with; true means that a path may follow.
var sqlRoots = map[string]bool{
	"key": false, "tenant": false, "task_id": false, "kind": false, "run": false, "outcome": false,
	"input": true, "result": true, "error": true,
}

var firstWords = []string{"INSERT", "UPDATE", "DELETE", "MERGE", "SELECT", "WITH"}

var errFirstWord = errors.New("the statement must begin with INSERT, UPDATE, DELETE, MERGE, SELECT or WITH")

// parseSQL finds the named arguments of one statement. Quoted text, comments and operators made with @ stay as they
// are; what Postgres would read as part of another token is no argument.
func parseSQL(sql string) (*statement, error) {
	s := &sqlScanner{src: sql}
	if err := s.scan(); err != nil {
		return nil, err
	}
	if !slices.Contains(firstWords, strings.ToUpper(s.first)) {
		return nil, errFirstWord
	}
	return &statement{text: strings.TrimSpace(s.out.String()), args: s.args}, nil
}

type sqlScanner struct {
	src   string
	i     int
	out   strings.Builder
	args  [][]string
	first string // the first word
	ended bool   // a semicolon was seen
}

func (s *sqlScanner) scan() error {
	for s.i < len(s.src) {
		if err := s.next(); err != nil {
			return err
		}
	}
	if s.first == "" {
		return errors.New("the statement is empty")
	}
	return nil
}

// next copies one token.
func (s *sqlScanner) next() error {
	rest := s.src[s.i:]
	c := rest[0]
	switch {
	case c == 0:
		return errors.New("the statement holds a NUL character")
	case strings.HasPrefix(rest, "--"):
		end := strings.IndexAny(rest, "\r\n")
		if end < 0 {
			end = len(rest)
		}
		s.i += end // a comment is dropped, as it could swallow what follows
		s.out.WriteByte(' ')
		return nil
	case strings.HasPrefix(rest, "/*"):
		n, err := blockComment(rest)
		s.i += n
		s.out.WriteByte(' ')
		return err
	case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
		s.copy(1)
		return nil
	case c == ';':
		s.ended = true
		s.i++
		return nil
	case s.ended:
		return errors.New("there is a second statement after the semicolon")
	}
	return s.token(rest)
}

func (s *sqlScanner) token(rest string) error {
	c := rest[0]
	switch {
	case isWordStart(c):
		return s.word(rest)
	case s.first == "" && c != '(':
		return errFirstWord
	case c == '\'':
		return s.quoted(rest, '\'', false)
	case c == '"':
		return s.quoted(rest, '"', false)
	case c == '$':
		return s.dollar(rest)
	case c >= '0' && c <= '9':
		s.copy(spanOf(rest, isWordByte))
		return nil
	case strings.IndexByte(operatorBytes, c) >= 0:
		return s.operator(rest)
	}
	s.copy(1)
	return nil
}

func (s *sqlScanner) copy(n int) {
	s.out.WriteString(s.src[s.i : s.i+n])
	s.i += n
}

// word copies an identifier or keyword, or an E, B, X, N or U& string that begins like one.
func (s *sqlScanner) word(rest string) error {
	n := spanOf(rest, isWordByte)
	w := rest[:n]
	if s.first == "" {
		s.first = w
	}
	if n == 1 && len(rest) > 1 && rest[1] == '\'' && strings.ContainsAny(w, "eEbBxXnN") {
		s.copy(1)
		return s.quoted(s.src[s.i:], '\'', strings.ContainsAny(w, "eE"))
	}
	s.copy(n)
	return nil
}

// quoted copies '...' or "...", where a doubled quote stands for one and, with escapes, a backslash hides the next.
func (s *sqlScanner) quoted(rest string, q byte, escapes bool) error {
	for j := 1; j < len(rest); j++ {
		switch {
		case rest[j] == 0:
			return errors.New("the statement holds a NUL character")
		case escapes && rest[j] == '\\':
			j++
		case rest[j] == q && j+1 < len(rest) && rest[j+1] == q:
			j++
		case rest[j] == q:
			s.copy(j + 1)
			return nil
		}
	}
	return fmt.Errorf("a %c quote is never closed", q)
}

// dollar copies $tag$...$tag$ and refuses $1, which would collide with our own.
func (s *sqlScanner) dollar(rest string) error {
	n := 1
	for n < len(rest) && isWordByte(rest[n]) && rest[n] != '$' {
		n++
	}
	if n < len(rest) && rest[n] == '$' && (n == 1 || isWordStart(rest[1])) {
		tag := rest[:n+1]
		end := strings.Index(rest[n+1:], tag)
		if end < 0 {
			return fmt.Errorf("the text opened by %s is never closed", clip(tag))
		}
		if strings.IndexByte(rest[:n+1+end], 0) >= 0 {
			return errors.New("the statement holds a NUL character")
		}
		s.copy(n + 1 + end + len(tag))
		return nil
	}
	return fmt.Errorf("%s cannot be used; name the value instead, as in @key or @result.total", clip(rest[:max(n, 1)]))
}

// operatorBytes are the characters Postgres makes operators of.
const operatorBytes = "+-*/<>=~!@#%^&|`?"

// plainOperators are those after which an @ begins an argument although Postgres would read one longer operator.
var plainOperators = []string{"", "=", "<>", "!=", "<=", ">=", ">", "+", "-", "*", "/", "%", "||"}

// operator copies a run of operator characters. A run that ends in @ directly before a name is an argument, unless it
// is one of the operators that end so (<@, @@, ^@, ?@ and their like).
func (s *sqlScanner) operator(rest string) error {
	n := 0
	for n < len(rest) && strings.IndexByte(operatorBytes, rest[n]) >= 0 &&
		!strings.HasPrefix(rest[n:], "--") && !strings.HasPrefix(rest[n:], "/*") {
		n++
	}
	run := rest[:n]
	named := strings.HasSuffix(run, "@") && n < len(rest) && isNameStart(rest[n])
	if !named || !slices.Contains(plainOperators, run[:n-1]) {
		s.copy(n)
		return nil
	}
	s.copy(n - 1)
	s.i++ // the @
	return s.argument(s.src[s.i:])
}

// argument reads a name such as result.items.0."unit price".
func (s *sqlScanner) argument(rest string) error {
	n := spanOf(rest, isNameByte)
	path := []string{rest[:n]}
	for n+1 < len(rest) && rest[n] == '.' {
		after := rest[n+1:]
		if m := spanOf(after, isNameByte); m > 0 {
			path = append(path, after[:m])
			n += 1 + m
			continue
		}
		end := -1
		if after[0] == '"' {
			end = strings.IndexByte(after[1:], '"')
		}
		if end < 1 {
			break
		}
		path = append(path, after[1:1+end])
		n += 1 + end + 2
	}
	if err := checkArgument(path); err != nil {
		return err
	}
	s.i += n
	s.args = append(s.args, path)
	at := len(s.args)
	if at > maxSQLArgs {
		return errors.New("there are more than 65535 arguments")
	}
	if before := s.out.String(); before != "" && isWordByte(before[len(before)-1]) {
		s.out.WriteByte(' ')
	}
	fmt.Fprintf(&s.out, "$%d", at)
	if s.i < len(s.src) && isWordByte(s.src[s.i]) {
		s.out.WriteByte(' ') // so that $1 and what follows stay two tokens
	}
	return nil
}

func checkArgument(path []string) error {
	name := strings.Join(path, ".")
	deep, ok := sqlRoots[path[0]]
	switch {
	case !ok:
		return fmt.Errorf("@%s is no argument; there are @key, @tenant, @task_id, @kind, @run, @outcome, @input.…, @result.…, @error.code and @error.message", clip(name))
	case !deep && len(path) > 1:
		return fmt.Errorf("@%s has no fields, so @%s cannot be", path[0], clip(name))
	case path[0] == "error" && (len(path) != 2 || path[1] != "code" && path[1] != "message"):
		return fmt.Errorf("@%s is no argument; there are @error.code and @error.message", clip(name))
	}
	return nil
}

// blockComment returns the length of the comment at the start of s; they nest.
func blockComment(s string) (int, error) {
	depth := 0
	for j := 0; j+1 < len(s); {
		switch s[j : j+2] {
		case "/*":
			depth++
			j += 2
		case "*/":
			depth--
			j += 2
			if depth == 0 {
				return j, nil
			}
		default:
			j++
		}
	}
	return len(s), errors.New("a comment is never closed")
}

func spanOf(s string, is func(byte) bool) int {
	n := 0
	for n < len(s) && is(s[n]) {
		n++
	}
	return n
}

func isNameStart(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isNameByte(c byte) bool  { return isNameStart(c) || c >= '0' && c <= '9' }

// Postgres takes every byte above 0x7f as a letter.
func isWordStart(c byte) bool { return isNameStart(c) || c >= 0x80 }
func isWordByte(c byte) bool  { return isNameByte(c) || c >= 0x80 || c == '$' }
