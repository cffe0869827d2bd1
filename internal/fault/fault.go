// Package fault names the classes of error ombud tells apart and maps each to
// every border it can cross: HTTP status, IPC code and exit code.
//
// A caller that needs to act on an error asks ClassOf, never the text. An error
// that was never classified is Internal: a defect of ours until shown otherwise.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Class says what kind of failure an error is and so what its receiver can do.
type Class string

// The classes. Their text is part of the wire format: never rename one.
const (
	Invalid      Class = "invalid"      // the request itself is wrong; sending it again will not help
	NotFound     Class = "not_found"    // the thing named does not exist
	Conflict     Class = "conflict"     // the thing is not in the state the request needs
	Denied       Class = "denied"       // ombud's policy says no
	Permission   Class = "permission"   // the operating system says no: file, socket, uid
	Unavailable  Class = "unavailable"  // a part is down, full or overloaded; later may work
	Waiting      Class = "waiting"      // a person has to decide first
	Timeout      Class = "timeout"      // a named limit ran out
	Cancelled    Class = "cancelled"    // somebody asked to stop
	Unknown      Class = "unknown"      // it may or may not have happened
	Verification Class = "verification" // a signature, chain or checksum does not hold
	Config       Class = "config"       // the configuration cannot be used
	Running      Class = "running"      // another daemon holds this instance
	Usage        Class = "usage"        // the command line is wrong
	Internal     Class = "internal"     // a defect of ombud
)

// Code is how one class looks at each border.
type Code struct {
	Class Class
	HTTP  int // HTTP status
	IPC   int // JSON-RPC 2.0 error code
	Exit  int // process exit code, after sysexits(3) where it has one
}

// table is the only place where classes and codes meet.
var table = []Code{
	{Invalid, 400, -32602, 2},
	{NotFound, 404, -32004, 1},
	{Conflict, 409, -32009, 1},
	{Denied, 403, -32003, 3},
	{Permission, 403, -32077, 77},
	{Unavailable, 503, -32005, 75},
	{Waiting, 202, -32075, 75},
	{Timeout, 504, -32008, 4},
	{Cancelled, 499, -32010, 1},
	{Unknown, 502, -32011, 1},
	{Verification, 422, -32012, 5},
	{Config, 500, -32078, 78},
	{Running, 409, -32073, 73},
	{Usage, 400, -32600, 2},
	{Internal, 500, -32603, 1},
}

// Codes returns the whole table, in a fresh slice.
func Codes() []Code { return append([]Code(nil), table...) }

// CodeOf returns the row of a class; an unknown class has the row of Internal.
func CodeOf(c Class) Code {
	for _, row := range table {
		if row.Class == c {
			return row
		}
	}
	return table[len(table)-1]
}

// ByIPC returns the class a JSON-RPC code stands for, Internal if none.
func ByIPC(code int) Class {
	for _, row := range table {
		if row.IPC == code {
			return row.Class
		}
	}
	return Internal
}

// Error is a classified error. Hint, if set, tells a person the way out.
type Error struct {
	Class Class
	Msg   string
	Hint  string
	Err   error // what caused it, may be nil
}

func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of class c. %w wraps a cause as in fmt.Errorf.
func New(c Class, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Class: c, Msg: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// WithHint returns a copy of e that tells the way out.
func (e *Error) WithHint(format string, args ...any) *Error {
	out := *e
	out.Hint = fmt.Sprintf(format, args...)
	return &out
}

// ClassOf returns the class of the outermost classified error in err's chain.
// Unclassified context errors are Timeout and Cancelled. A nil error has no
// class: the empty string.
func ClassOf(err error) Class {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// Is reports whether err is of class c.
func Is(err error, c Class) bool { return ClassOf(err) == c }

// HintOf returns the outermost hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// Exit returns the exit code of err, 0 for nil.
func Exit(err error) int {
	if err == nil {
		return 0
	}
	return CodeOf(ClassOf(err)).Exit
}
