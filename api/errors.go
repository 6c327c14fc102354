package api

import (
	"errors"
	"fmt"
	"time"
)

// Code is a stable word for one situation; programs decide by it. The table
// Codes says for each its status, meaning and fix.
type Code string

// Error is the one error type that crosses packages and the wire
// (application/problem+json). Code is for programs, Message for people, Fix
// says what to do next. An error without a Code is internal and answered as
// such, never shown.
type Error struct {
	Code       Code          `json:"code"`
	Status     int           `json:"status"`
	Message    string        `json:"detail"`
	Fix        string        `json:"fix,omitempty"`
	Mismatch   []string      `json:"mismatch,omitempty"`   // field paths, with key_reused
	Field      string        `json:"field,omitempty"`      // the field or header at fault
	Line       int           `json:"line,omitempty"`       // of a batch's file, from 1
	FirstLine  int           `json:"first_line,omitempty"` // with duplicate_custom_id: the line that has the id, too
	TaskID     string        `json:"task_id,omitempty"`    // the task concerned, where the caller may know it
	RequestID  string        `json:"request_id,omitempty"` // to be quoted when asking for help
	Tombstone  *Tombstone    `json:"tombstone,omitempty"`  // with expired: what is still known of the task
	Quota      Quota         `json:"quota,omitempty"`      // with over_quota: which one
	RetryAfter time.Duration `json:"-"`
	// Task is set by the client where a task came with the error (Wait).
	Task *Task `json:"-"`
}

// Tombstone is what is known of a task past its retention.
type Tombstone struct {
	State      State      `json:"state"`
	ErrorCode  string     `json:"error_code,omitempty"`
	ResultHash string     `json:"result_hash,omitempty"` // hex SHA-256 of the result's bytes
	PurgedAt   *time.Time `json:"purged_at,omitempty"`   // absent while the purge is still to come
}

// Errorf makes an Error with the status and fix of the code's row in Codes.
func Errorf(code Code, format string, args ...any) *Error {
	row := Codes[code]
	return &Error{Code: code, Status: row.Status, Message: fmt.Sprintf(format, args...), Fix: row.Fix}
}

// WithField returns e naming the field or header at fault.
func (e *Error) WithField(f string) *Error { e.Field = f; return e }

// WithLine returns e naming the line of a file at fault.
func (e *Error) WithLine(n int) *Error { e.Line = n; return e }

// WithFix returns e with a fix closer to the situation than the table's.
func (e *Error) WithFix(format string, args ...any) *Error {
	e.Fix = fmt.Sprintf(format, args...)
	return e
}

// WithRetryAfter returns e with the time after which the same request makes sense.
func (e *Error) WithRetryAfter(d time.Duration) *Error { e.RetryAfter = d; return e }

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + e.Message
}

// Is makes errors.Is(err, api.ErrNotFound) hold for every code of that class,
// and errors.Is(err, &Error{Code: c}) for that code alone. With a settled Task
// the class of its state holds as well, whatever the code.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code
	}
	return target == e.class() || (e.Task != nil && target == stateClass(e.Task.State))
}

// class is the code's class; for a code this version does not know (a newer
// server's), the class of the status.
func (e *Error) class() error {
	if row, ok := Codes[e.Code]; ok {
		return row.Class
	}
	switch e.Status {
	case 401:
		return ErrUnauthorized
	case 403:
		return ErrForbidden
	case 404:
		return ErrNotFound
	case 409:
		return ErrConflict
	case 410:
		return ErrExpired
	case 429:
		return ErrRateLimited
	case 408, 502, 503, 504:
		return ErrUnavailable
	}
	if e.Status >= 400 && e.Status < 500 {
		return ErrInvalid
	}
	return ErrInternal
}

func stateClass(s State) error {
	switch s {
	case Failed, Cancelled:
		return ErrFailed
	case Unknown:
		return ErrUnknown
	default:
		return nil
	}
}

// The classes that callers tell apart with errors.Is.
var (
	ErrInvalid      = errors.New("invalid request")
	ErrUnauthorized = errors.New("not authenticated")
	ErrForbidden    = errors.New("not allowed")
	ErrNotFound     = errors.New("not found")
	ErrExpired      = errors.New("expired")
	ErrKeyReused    = errors.New("key reused with another payload")
	ErrConflict     = errors.New("conflict with the present state")
	ErrRateLimited  = errors.New("over quota")
	ErrUnavailable  = errors.New("unavailable for now")
	ErrUnknown      = errors.New("outcome unknown")
	ErrFailed       = errors.New("task failed")
	ErrInternal     = errors.New("internal error")
)
