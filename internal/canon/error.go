package canon

import (
	"fmt"
	"strconv"
	"strings"
)

// The codes an [Error] can carry. They are part of the API: a program may
// depend on them, so none is ever renamed.
const (
	CodeInvalidJSON      = "invalid_json"        // not one JSON value, or not an object where one is needed
	CodeDuplicateMember  = "duplicate_member"    // one name twice in one object
	CodeInvalidUnicode   = "invalid_unicode"     // ill-formed UTF-8, or an escaped surrogate without its other half
	CodeNULCharacter     = "nul_character"       // U+0000 in a string or a name
	CodeByteOrderMark    = "byte_order_mark"     // the text starts with a byte order mark
	CodeTrailingData     = "trailing_data"       // something follows the value
	CodeTooDeep          = "too_deep"            // nested deeper than MaxDepth
	CodeNumberOutOfRange = "number_out_of_range" // exponent or length of a number beyond the limits
	CodeTooLarge         = "too_large"           // longer than MaxBytes
	CodeInvalidInput     = "invalid_input"       // well-formed, but not what the kind takes

	CodeKeyMissing      = "key_missing"       // no key where one is required
	CodeKeyBlank        = "key_blank"         // a key header with nothing in it
	CodeKeyRepeated     = "key_repeated"      // more than one header line
	CodeKeyMalformed    = "key_malformed"     // a byte outside 0x21-0x7E, or a broken quoted string
	CodeKeyTooLong      = "key_too_long"      // more than MaxKeyBytes
	CodeKeyConflict     = "key_conflict"      // both key headers, with different keys
	CodeKeyReservedForm = "key_reserved_form" // starts with ReservedPrefix
)

// Codes returns every code an [Error] can carry, for documentation and for
// tests that each is known elsewhere.
func Codes() []string {
	return []string{
		CodeInvalidJSON, CodeDuplicateMember, CodeInvalidUnicode, CodeNULCharacter, CodeByteOrderMark,
		CodeTrailingData, CodeTooDeep, CodeNumberOutOfRange, CodeTooLarge, CodeInvalidInput,
		CodeKeyMissing, CodeKeyBlank, CodeKeyRepeated, CodeKeyMalformed, CodeKeyTooLong, CodeKeyConflict,
		CodeKeyReservedForm,
	}
}

// An Error says what is wrong with a value or a key. Every error this package
// returns is an *Error. No field ever holds the text of a value or of a key;
// Message and Path hold member names, escaped and shortened.
type Error struct {
	Code    string // one of the Code constants
	Message string // for people: what is wrong and where
	Fix     string // for people: what to do about it
	Offset  int64  // byte at which it was found, -1 where that means nothing
	Path    string // member path such as input.messages[0].content; "" for the value itself

	segments []segment // innermost first, while the scanner unwinds
}

// Error implements the error interface.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// failure returns a new error found at byte at. The place is added to its
// message by finish.
func failure(code string, at int, message, fix string) *Error {
	return &Error{Code: code, Message: message, Fix: fix, Offset: int64(at)}
}

// within notes that e was found inside the member or element s.
func (e *Error) within(s segment) *Error {
	e.segments = append(e.segments, s)
	return e
}

// finish turns the segments collected while unwinding into Path and completes
// the message. root is the name of the value within a larger one, or "".
func (e *Error) finish(root string) *Error {
	path := []byte(root)
	for i := len(e.segments) - 1; i >= 0; i-- {
		if len(path) > maxPathBytes {
			path = append(path, "..."...)
			break
		}
		path = e.segments[i].appendTo(path)
	}
	e.Path, e.segments = string(path), nil
	if e.Path != "" {
		e.Message += " at " + e.Path
	}
	if e.Offset >= 0 {
		e.Message += fmt.Sprintf(" (byte %d)", e.Offset)
	}
	return e
}

const (
	maxPathBytes = 256 // a path is cut after the segment that crosses this
	maxNameBytes = 64  // a member name inside a path is cut here
)

// A segment is one step of a path: a member name, or an array index.
type segment struct {
	name  string
	index int // -1 for a member
}

func memberSegment(name []byte) segment {
	return segment{name: string(name[:min(len(name), maxNameBytes+1)]), index: -1}
}

func indexSegment(i int) segment { return segment{index: i} }

// appendTo appends the segment to a path: .name for plain names, ["na me"]
// with every unusual character escaped for others, [3] for an index.
func (s segment) appendTo(path []byte) []byte {
	if s.index >= 0 {
		path = append(path, '[')
		path = strconv.AppendInt(path, int64(s.index), 10)
		return append(path, ']')
	}
	name, cut := s.name, ""
	if len(name) > maxNameBytes {
		name, cut = strings.ToValidUTF8(name[:maxNameBytes], ""), "..."
	}
	if plainName(name) && cut == "" {
		if len(path) > 0 {
			path = append(path, '.')
		}
		return append(path, name...)
	}
	path = append(path, '[')
	path = strconv.AppendQuoteToASCII(path, name+cut)
	return append(path, ']')
}

// plainName reports whether a name can stand in a path as it is.
func plainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c != '-' && (c < '0' || c > '9'))) {
			return false
		}
	}
	return name != ""
}
