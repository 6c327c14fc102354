package fakellm

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A script says how calls are answered:
//
//	script = step *( ";" step )        the nth call of a key plays the nth step; the last one repeats
//	step   = [ count "*" ] mix         the step counts as that many
//	mix    = part *( "|" part )        one part is chosen by the hash of prompt and call number
//	part   = [ percent "%" ] options   parts without a percentage share what the others leave
//	options = option *( "," option )
//
// The key of a call is its Onefold-Task header, else its prompt. In a model name the script follows "fake:", as in
// "fake:status=500;latency=200ms,rate=50".

// step is what one call does. The zero value echoes at once.
type step struct {
	extract    bool
	text       string        // fixed text instead of the echo
	tokens     int           // a generated text of so many tokens
	stamp      bool          // the text ends with the call's request id, so that no two replies are equal
	latency    time.Duration // up to the first token
	rate       float64       // tokens a second; 0 = all at once
	cold       time.Duration // more latency for the first coldCalls calls of a model, and after coldIdle without one
	coldCalls  int
	coldIdle   time.Duration
	status     int
	retryAfter string
	code       string // error code
	hang       bool   // never answer
	headers    bool   // with hang: after the headers
	stall      int    // fall silent after so many tokens; 0 = never
	cut        int    // close the connection after so many body bytes; 0 = never
	fail       string // with after: an error event with this code
	after      int    // tokens before the error event
	ping       time.Duration
	finish     string // finish_reason
	noUsage    bool
	abort      bool // stop working when the client goes, instead of finishing unseen
}

var errorCodes = map[int]string{
	400: "invalid_request_error", 401: "invalid_api_key", 402: "insufficient_quota", 404: "model_not_found",
	429: "rate_limit_exceeded", 503: "overloaded", 529: "overloaded_error",
}

// choose returns the step that the nth call (from 1) of a key plays.
func choose(script, prompt string, n int) (step, error) {
	mix := ""
	for _, s := range strings.Split(script, ";") {
		s = strings.TrimSpace(s)
		count := 1
		if before, rest, ok := strings.Cut(s, "*"); ok {
			if c, err := strconv.Atoi(strings.TrimSpace(before)); err == nil && c > 0 {
				count, s = c, rest
			}
		}
		mix = s
		if n -= count; n <= 0 {
			break
		}
	}
	options, err := pick(mix, prompt, n)
	if err != nil {
		return step{}, err
	}
	return parse(options)
}

// pick chooses one part of a mix; the same prompt and call number choose the same.
func pick(mix, prompt string, n int) (string, error) {
	parts := strings.Split(mix, "|")
	if len(parts) == 1 {
		return mix, nil
	}
	var shares []float64
	rest, open := 100.0, 0
	for i, p := range parts {
		share := -1.0
		if before, after, ok := strings.Cut(p, "%"); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(before), 64)
			if err != nil || f < 0 || f > 100 {
				return "", fmt.Errorf("%q is no percentage", before)
			}
			share, parts[i] = f, after
			rest -= f
		} else {
			open++
		}
		shares = append(shares, share)
	}
	if rest < 0 {
		return "", fmt.Errorf("the percentages of %q add up to more than 100", mix)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", n, prompt)
	at := float64(h.Sum64()%100_000) / 1000
	for i, share := range shares {
		if share < 0 {
			share = rest / float64(open)
		}
		if at -= share; at < 0 {
			return parts[i], nil
		}
	}
	return "", nil
}

func parse(options string) (step, error) {
	var s step
	for _, o := range strings.Split(options, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(o), "=")
		if err := s.set(name, value); err != nil {
			return step{}, fmt.Errorf("option %q: %w", o, err)
		}
	}
	return s, nil
}

func (s *step) set(name, value string) (err error) {
	switch name {
	case "", "ok", "echo":
	case "extract":
		s.extract = true
	case "text":
		s.text, err = url.QueryUnescape(value)
	case "tokens":
		s.tokens, err = strconv.Atoi(value)
	case "stamp":
		s.stamp = true
	case "latency":
		s.latency, err = time.ParseDuration(value)
	case "rate":
		s.rate, err = strconv.ParseFloat(strings.TrimSuffix(value, "tps"), 64)
	case "cold":
		s.cold, err = time.ParseDuration(value)
		s.coldCalls = max(s.coldCalls, 1)
	case "cold_calls":
		s.coldCalls, err = strconv.Atoi(value)
	case "cold_idle":
		s.coldIdle, err = time.ParseDuration(value)
	case "ping":
		s.ping, err = time.ParseDuration(value)
	default:
		err = s.setFailure(name, value)
	}
	return err
}

func (s *step) setFailure(name, value string) (err error) {
	switch name {
	case "status":
		if s.status, err = strconv.Atoi(value); err == nil && (s.status < 200 || s.status > 999) {
			err = fmt.Errorf("no HTTP status")
		}
	case "retry_after":
		s.retryAfter = value
	case "code":
		s.code = value
	case "hang":
		s.hang, s.headers = true, value == "headers"
	case "stall":
		s.stall, err = strconv.Atoi(value)
	case "cut":
		s.cut, err = strconv.Atoi(value)
	case "error":
		s.fail = value
	case "after":
		s.after, err = strconv.Atoi(value)
	case "finish":
		s.finish = value
	case "usage":
		s.noUsage = value == "none"
	case "abort":
		s.abort = true
	default:
		err = fmt.Errorf("not known")
	}
	return err
}
