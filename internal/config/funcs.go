package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/template"
)

// rawJSON is the output of the function json: text that is one JSON value.
type rawJSON string

// funcs are the functions of templates besides those text/template always has. Those of its own that print with fmt
// or compare are replaced: a number of the input is a json.Number here, so that its digits are kept.
var funcs = template.FuncMap{
	"json":    func(v any) (rawJSON, error) { s, err := toJSON(v); return rawJSON(s), err },
	"default": func(fallback, v any) any { return pick(v, fallback) },
	"has":     func(v any) bool { return v != nil },
	"lower":   func(v any) (string, error) { s, err := plainText(v); return strings.ToLower(s), err },
	"upper":   func(v any) (string, error) { s, err := plainText(v); return strings.ToUpper(s), err },
	"trim":    func(v any) (string, error) { s, err := plainText(v); return strings.TrimSpace(s), err },
	"join":    joinList,
	"print":   func(v ...any) (string, error) { return printed(fmt.Sprint, v) },
	"println": func(v ...any) (string, error) { return printed(fmt.Sprintln, v) },
	"printf": func(format string, v ...any) (string, error) {
		return printed(func(a ...any) string { return fmt.Sprintf(format, a...) }, v)
	},
	"eq": func(a any, bs ...any) (bool, error) {
		for _, b := range bs {
			if c, err := compare(a, b); err == nil && c == 0 {
				return true, nil
			}
		}
		return false, nil
	},
	"ne":      func(a, b any) (bool, error) { c, err := compare(a, b); return err != nil || c != 0, nil },
	"lt":      func(a, b any) (bool, error) { c, err := compare(a, b); return c < 0, err },
	"le":      func(a, b any) (bool, error) { c, err := compare(a, b); return c <= 0, err },
	"gt":      func(a, b any) (bool, error) { c, err := compare(a, b); return c > 0, err },
	"ge":      func(a, b any) (bool, error) { c, err := compare(a, b); return c >= 0, err },
	"not":     func(v any) bool { return !truth(v) },
	"call":    func(...any) (string, error) { return "", problem("call is not supported") },
	"_lookup": lookUp,
	"_truth":  truth,
}

func pick(v, fallback any) any {
	if v == nil {
		return fallback
	}
	return v
}

// lookUp descends path and gives nil where it ends early.
func lookUp(v any, path ...string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// truth is what if goes by: null, false, 0, "", and an empty list or mapping are false.
func truth(v any) bool {
	if n, ok := v.(json.Number); ok {
		f, err := strconv.ParseFloat(string(n), 64)
		return err != nil || f != 0
	}
	is, _ := template.IsTrue(v)
	return is
}

// plainText is how a value is printed. There is no way to print null, a list or a mapping that a reader would expect,
// so these are errors.
func plainText(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", problem("the value is null; give one with default, or print it with json")
	case string:
		return v, nil
	case json.Number:
		return string(v), nil
	case rawJSON:
		return string(v), nil
	case bool, int, int64, float64:
		return fmt.Sprint(v), nil
	case []any:
		return "", problem("the value is a list; print it with json or join")
	case map[string]any:
		return "", problem("the value is an object; print it with json")
	}
	return fmt.Sprint(v), nil
}

func toJSON(v any) (string, error) {
	if raw, ok := v.(rawJSON); ok { // {{json (json .x)}}: the JSON text as a string
		v = string(raw)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", problem("the value cannot be written as JSON")
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func joinList(sep string, v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		return "", problem("join needs a list")
	}
	parts := make([]string, len(list))
	for i, item := range list {
		s, err := plainText(item)
		if err != nil {
			return "", err
		}
		parts[i] = s
	}
	return strings.Join(parts, sep), nil
}

// printed formats values that plainText would print.
func printed(sprint func(...any) string, values []any) (string, error) {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
		if n, ok := v.(json.Number); ok {
			args[i] = number(n)
			continue
		}
		if _, err := plainText(v); err != nil {
			return "", err
		}
	}
	return sprint(args...), nil
}

// number is a json.Number that printf can take: %d and %f see its value, every other verb its digits.
type number json.Number

func (n number) Format(f fmt.State, verb rune) {
	var v any = string(n)
	switch verb {
	case 'd', 'x', 'X', 'o', 'b', 'c':
		if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
			v = i
		}
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if x, err := strconv.ParseFloat(string(n), 64); err == nil {
			v = x
		}
	case 'v':
		verb = 's'
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), v)
}

// compare orders two texts, or two numbers: whole ones exactly, others as float64.
func compare(a, b any) (int, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	if x, ok := a.(bool); ok {
		if y, ok := b.(bool); ok && x == y {
			return 0, nil
		}
	}
	if a == nil && b == nil {
		return 0, nil
	}
	x, okA := numeral(a)
	y, okB := numeral(b)
	if !okA || !okB {
		return 0, problem("these two values cannot be compared")
	}
	i, errI := strconv.ParseInt(x, 10, 64)
	j, errJ := strconv.ParseInt(y, 10, 64)
	if errI == nil && errJ == nil {
		return order(i, j), nil
	}
	f, _ := strconv.ParseFloat(x, 64)
	g, _ := strconv.ParseFloat(y, 64)
	return order(f, g), nil
}

func order[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func numeral(v any) (string, bool) {
	switch v := v.(type) {
	case json.Number:
		return string(v), true
	case int, int64, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}
