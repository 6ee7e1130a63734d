// Package wire is how flexdriver hands a callout to the daemon: one JSON line
// each way over a unix socket. README.md is its specification.
//
// The client is for a program that starts with every call, so it does without
// package net. The server is in package daemon (server.go).
package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// version is that of requests and responses written here. It changes when an
// old peer could misunderstand; fields that are merely new do not change it.
const version = 1

// MaxLine bounds a request or response in bytes. The kernel bounds the
// arguments of a callout to 128 KiB each.
const MaxLine = 1 << 20

// DefaultSocket is where the daemon listens by default.
const DefaultSocket = "/run/flex2csi/flex2csi.sock"

// maxDocument bounds the response to a request of another kind than a callout,
// which may tell of thousands of volumes.
const maxDocument = 64 << 20

// The questions that there are.
const (
	// KindStatus asks for a BridgeStatus (docs/status.md).
	KindStatus = "status"
	// KindReady asks for a Readiness: whether calls are answered.
	KindReady = "ready"
	// KindCordon asks the daemon to set up no new volume. The answer is the Readiness
	// after it.
	KindCordon = "cordon"
	// KindUncordon ends that.
	KindUncordon = "uncordon"
)

// A Request is one callout, or a question of another kind.
type Request struct {
	Version int `json:"version"`
	// Kind is empty for a callout. A question has no driver and no argv.
	Kind string `json:"kind,omitempty"`
	// ID names the call in the logs of both sides.
	ID string `json:"id"`
	// Driver is vendor/name.
	Driver string `json:"driver,omitempty"`
	// TimeoutMillis is how long the caller will wait from now. It is a
	// duration because clocks jump.
	TimeoutMillis int64 `json:"timeoutMillis"`
	// Argv is the callout with its arguments as the kubelet passed them,
	// secrets included: the socket is for root alone.
	Argv []string `json:"argv,omitempty"`

	// own: only a process of this PID namespace is asked.
	own bool
}

// limit is the length of the response.
func (r *Request) limit() int {
	if r.Kind != "" {
		return maxDocument
	}
	return MaxLine
}

// Timeout is TimeoutMillis.
func (r *Request) Timeout() time.Duration { return time.Duration(r.TimeoutMillis) * time.Millisecond }

// A Response is the answer to a callout, or why there is none.
type Response struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	// Status is the answer as the kubelet will see it.
	Status flex.DriverStatus `json:"status"`
	// Code classes a Failure.
	Code flex.Code `json:"code,omitempty"`
	// Document answers a question.
	Document json.RawMessage `json:"document,omitempty"`
}

// NewRequest makes a request with a random ID.
func NewRequest(driver string, argv []string, timeout time.Duration) *Request {
	r := newQuestion("", timeout)
	r.Driver, r.Argv = driver, argv
	return r
}

func newQuestion(kind string, timeout time.Duration) *Request {
	return &Request{Version: version, Kind: kind, ID: NewID(), TimeoutMillis: timeout.Milliseconds()}
}

// NewID returns a random ID of a request.
func NewID() string {
	id := make([]byte, 8)
	_, _ = unix.Getrandom(id, 0) // cannot fail; crypto/rand would cost each callout its start
	return hex.EncodeToString(id)
}

// Answer makes the response to a request.
func Answer(id string, status flex.DriverStatus) *Response {
	return &Response{Version: version, ID: id, Status: status, Code: status.Code}
}

// Encode returns a request, or the response to a callout, as one line.
func Encode(v any) ([]byte, error) { return encode(v, MaxLine) }

// EncodeDocument returns the response to a question as one line.
func EncodeDocument(r *Response) ([]byte, error) { return encode(r, maxDocument) }

func encode(v any, limit int) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) >= limit {
		return nil, fmt.Errorf("it has %d bytes, and at most %d fit", len(data), limit)
	}
	return append(data, '\n'), nil
}

// DecodeRequest reads a line. Unknown fields are ignored, so that an older
// daemon serves a newer driver; another version is an error, with the request
// as far as it could be read.
func DecodeRequest(line []byte) (*Request, error) {
	var r Request
	if err := decode(line, &r); err != nil {
		return &r, err
	}
	switch {
	case r.Version != version:
		return &r, versionError("the driver", r.Version)
	case r.TimeoutMillis <= 0:
		return &r, errors.New("the request lacks timeoutMillis")
	case r.Kind == "" && (len(r.Argv) == 0 || r.Driver == ""):
		return &r, errors.New("the request lacks argv or driver")
	}
	return &r, nil
}

// DecodeResponse reads a line that answers the request with the given ID.
func DecodeResponse(line []byte, id string) (*Response, error) {
	var r Response
	if err := decode(line, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Version != version:
		return nil, versionError("the daemon", r.Version)
	case r.ID != id:
		return nil, errors.New("the response is to another request")
	}
	switch r.Status.Status {
	case flex.StatusSuccess, flex.StatusFailure, flex.StatusNotSupported:
	default:
		return nil, errors.New("the response has no status that a FlexVolume driver may give")
	}
	r.Status.Code = r.Code
	return &r, nil
}

func decode(line []byte, v any) error {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if bytes.IndexByte(line, '\n') >= 0 {
		return errors.New("there is more than one line")
	}
	if err := json.Unmarshal(line, v); err != nil {
		// The text of the error may quote the line, and a secret with it.
		return errors.New("the line is not JSON of the expected form")
	}
	return nil
}

func versionError(who string, theirs int) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "%s speaks version %d of the wire protocol and this side version %d; bring flexdriver and flex2csi on this node to the same release", who, theirs, version)
}
