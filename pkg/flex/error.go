package flex

import (
	"context"
	"errors"
	"fmt"
)

// Code classes an error for programs and logs. People read the message. The
// names are those of gRPC and CSI in lower case, so that codes of a storage
// system carry over one to one.
type Code string

// The codes. Only [Run] gives meaning to some: [CodeUnimplemented] for an
// unknown callout or one that the [Driver] does not have becomes "Not
// supported". Returned by Handle it is a Failure like any other, because
// the kubelet remembers "Not supported" for as long as it lives.
const (
	CodeInvalidArgument    Code = "invalid_argument"    // the caller must change something
	CodeNotFound           Code = "not_found"           // what the volume names is not there
	CodeAlreadyExists      Code = "already_exists"      // it is there, but different
	CodeFailedPrecondition Code = "failed_precondition" // something else has to happen first
	CodePermissionDenied   Code = "permission_denied"   // not allowed
	CodeUnavailable        Code = "unavailable"         // a service does not answer: try again
	CodeDeadlineExceeded   Code = "deadline_exceeded"   // not finished in time: try again
	CodeCanceled           Code = "canceled"            // interrupted: try again
	CodeAborted            Code = "aborted"             // another call works on the same volume: try again
	CodeResourceExhausted  Code = "resource_exhausted"  // no space, no memory, no free device
	CodeUnimplemented      Code = "unimplemented"       // this driver never does this
	CodeInternal           Code = "internal"            // anything else, panics too
)

// Error is an error with a [Code].
type Error struct {
	Code Code
	Err  error // what happened, in words; lower case, what to do last
}

// Error returns the text of Err; the code is not part of it.
func (e *Error) Error() string {
	switch {
	case e == nil: // a typed nil in an error: a bug elsewhere that must not become a panic here
		return string(CodeInternal)
	case e.Err == nil:
		return string(e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Errorf makes an [Error] of a code and a text as fmt.Errorf does, %w included.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// CodeOf returns the code of the outermost [Error] in err's chain. The errors
// of a context have their own codes; any other error is [CodeInternal] and
// nil has the empty code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok && e != nil && e.Code != "" {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	}
	return CodeInternal
}
