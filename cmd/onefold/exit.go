package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onefold-dev/onefold/api"
	"github.com/onefold-dev/onefold/internal/config"
)

// The exit codes. They are part of the interface: scripts decide by them.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitFailed      = 3
	exitUnknown     = 4
	exitCancelled   = 5
	exitNotFound    = 6
	exitUnavailable = 7
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

const exitHelp = `
Exit codes:

    0    done
    1    refused or gone wrong; the message says what to do
    2    the command line is wrong; nothing was sent
    3    the task failed                        (wait, submit --wait)
    4    what became of the task is not known   (wait, submit --wait)
    5    the task was cancelled                 (wait, submit --wait)
    6    no such task, or past its retention
    7    server or database away, or --timeout ran out; the same command again is safe
  130    interrupted; the task goes on

Of several tasks the first of 1, 7, 6, 4, 3, 5 that applies.
`

// worst orders exit codes for a command about several tasks.
var worst = []int{exitInterrupted, exitError, exitUnavailable, exitNotFound, exitUnknown, exitFailed, exitCancelled}

// problem is an error with what to do about it and the exit code it stands for.
type problem struct {
	code    int
	message string
	fix     string
	cause   error
}

func (p *problem) Error() string { return p.message }
func (p *problem) Unwrap() error { return p.cause }

// usage is a problem of the command line.
func usage(message, fix string, args ...any) error {
	return &problem{code: exitUsage, message: message, fix: fmt.Sprintf(fix, args...)}
}

// ending is an exit code without a message: the output says it already.
type ending int

func (e ending) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// stateCode is the exit code of a settled task.
func stateCode(s api.State) int {
	switch s {
	case api.Failed:
		return exitFailed
	case api.Unknown:
		return exitUnknown
	case api.Cancelled:
		return exitCancelled
	default:
		return exitOK
	}
}

// exitCode is the code that err stands for.
func exitCode(err error) int {
	var p *problem
	var end ending
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &end):
		return int(end)
	case errors.As(err, &p):
		return p.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, api.ErrNotFound), errors.Is(err, api.ErrExpired):
		return exitNotFound
	case errors.Is(err, api.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	default:
		return exitError
	}
}

// report prints err to stderr, for people or as one line of JSON, and returns
// the exit code.
func (e *env) report(ctx context.Context, err error) int {
	code := exitCode(err)
	if ctx.Err() != nil && code != exitOK {
		code = exitInterrupted
	}
	var end ending
	if errors.As(err, &end) {
		return code
	}
	var bad config.Errors
	if errors.As(err, &bad) && !e.json {
		_ = bad.Write(e.stderr, e.errColor) // stderr gone: nobody is left to tell
		return code
	}
	r := describe(err)
	r.Exit = code
	if e.json {
		line, _ := json.Marshal(map[string]any{"error": r}) // strings and ints always encode
		fmt.Fprintln(e.stderr, string(line))
		return code
	}
	e.say("%s", e.red(clean(err.Error())))
	for _, l := range [][2]string{{"fields", strings.Join(r.Mismatch, ", ")}, {"field", r.Field}, {"was", was(r.Tombstone)}, {"fix", r.Fix}, {"request", r.RequestID}} {
		if l[1] != "" {
			fmt.Fprintf(e.stderr, "  %-8s%s\n", l[0], clean(l[1]))
		}
	}
	return code
}

// told is an error as -o json shows it.
type told struct {
	Code      api.Code       `json:"code,omitempty"`
	Message   string         `json:"message"`
	Fix       string         `json:"fix,omitempty"`
	Field     string         `json:"field,omitempty"`
	Mismatch  []string       `json:"mismatch,omitempty"`
	TaskID    string         `json:"task_id,omitempty"`
	RequestID string         `json:"request_id,omitempty"`
	Tombstone *api.Tombstone `json:"tombstone,omitempty"`
	Exit      int            `json:"exit"`
}

func describe(err error) told {
	r := told{Message: err.Error()}
	var ae *api.Error
	if errors.As(err, &ae) {
		r.Code, r.Fix, r.Field, r.Mismatch, r.TaskID, r.RequestID = ae.Code, ae.Fix, ae.Field, ae.Mismatch, ae.TaskID, ae.RequestID
		r.Tombstone = ae.Tombstone
	}
	var p *problem
	if errors.As(err, &p) && p.fix != "" {
		r.Fix = p.fix
	}
	return r
}

// was says what is still known of a purged task.
func was(t *api.Tombstone) string {
	if t == nil {
		return ""
	}
	s := string(t.State)
	if t.ErrorCode != "" {
		s += " (" + t.ErrorCode + ")"
	}
	if t.ResultHash != "" {
		s += ", SHA-256 of its result " + t.ResultHash
	}
	return s
}

func (e *env) say(format string, args ...any) {
	fmt.Fprintf(e.stderr, "onefold: "+format+"\n", args...)
}
