package provider

import (
	"fmt"
	"slices"
	"strings"
)

// New makes an Error with the class, the gate and the billing that Table gives for code. It panics on a code that the
// table does not have: that is a fault of the program, found by the first test that reaches it.
func New(code, message string) *Error { return ByCode(code).error(message) }

// ByCode returns the first row with a code of ours; it panics where New does.
func ByCode(code string) Rule {
	for i := range Table {
		if Table[i].Code == code {
			return Table[i]
		}
	}
	panic(fmt.Sprintf("provider: code %q is not in the failure table", code))
}

// ByWord looks the provider's own code words up, in order, and returns the row of the first that is known.
func ByWord(words ...string) (Rule, bool) {
	for _, w := range words {
		w = strings.ToLower(w)
		for i := range codeRules {
			if slices.Contains(codeRules[i].Words, w) {
				return codeRules[i], true
			}
		}
	}
	return Rule{}, false
}

// ByStatus returns the row for an HTTP status that is not 2xx. Every status has one.
func ByStatus(status int) Rule {
	for i := range statusRules {
		for _, r := range statusRules[i].Statuses {
			if r[0] <= status && status <= r[1] {
				return statusRules[i]
			}
		}
	}
	return statusRules[len(statusRules)-1]
}

// Error makes the Error of a row.
func (r Rule) Error(message string) *Error { return r.error(message) }

func (r Rule) error(message string) *Error {
	return &Error{
		Class: r.Class, Code: r.Code, Permanent: r.Permanent, Gate: r.Gate, Billed: r.Billed, Message: message,
	}
}
