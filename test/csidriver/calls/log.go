// Package calls writes down each call of a CSI driver, before and after, as
// JSON lines, and reads them again: tests look there whether every stage had
// its unstage. No secrets, contexts or mount flags are written.
package calls

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// line is one line of the log. Each call has two: one with begin, one without.
type line struct {
	ID     string    `json:"id"`
	Time   time.Time `json:"time"`
	Begin  bool      `json:"begin,omitempty"`
	Method string    `json:"method"`
	Volume string    `json:"volume,omitempty"`
	// Path is the target, or the staging path of stage and unstage.
	Path string `json:"path,omitempty"`
	Node string `json:"node,omitempty"`
	// Code is what was answered.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Left says that the caller did not wait for the answer.
	Left bool `json:"left,omitempty"`
	// Work is what the driver's own work ended with; empty if it was not begun.
	Work string `json:"work,omitempty"`
}

// A Log appends to a file.
type Log struct {
	mu   sync.Mutex
	f    *os.File
	next int
}

// Open opens a log, and makes it if need be. A line that a driver was killed over is
// ended, as it is.
func Open(name string) (*Log, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err == nil {
		err = endLine(f)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log of calls: %w", err)
	}
	return &Log{f: f}, nil
}

func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.WriteString("\n")
	return err
}

// Close closes the file.
func (l *Log) Close() error { return l.f.Close() }

type workKey struct{}

// Answers is the outermost interceptor (csidriver.Config.Outer): it sees what
// the caller sees. A call is not begun that its caller has left before: on a busy
// machine it would come after the call that undoes it.
func (l *Log) Answers(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	entry := line{ID: l.id(), Time: time.Now(), Begin: true, Method: path.Base(info.FullMethod)}
	entry.describe(req)
	if err := l.write(entry); err != nil {
		return nil, err
	}
	work := new(string)
	answer, err := handler(context.WithValue(ctx, workKey{}, work), req)
	entry.Begin, entry.Time = false, time.Now()
	entry.Code, entry.Work, entry.Left = status.Code(err).String(), *work, ctx.Err() != nil
	if err != nil {
		entry.Message = status.Convert(err).Message()
	}
	if err := l.write(entry); err != nil {
		return nil, err
	}
	return answer, err
}

// Work is the innermost interceptor (the last of csidriver.Config.Inner): it
// sees how the work ended, whatever is answered.
func (l *Log) Work(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, req)
	if work, ok := ctx.Value(workKey{}).(*string); ok {
		*work = status.Code(err).String()
	}
	return answer, err
}

// id is another in each process.
func (l *Log) id() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return fmt.Sprintf("%d-%d-%d", os.Getpid(), time.Now().UnixNano(), l.next)
}

func (l *Log) write(entry line) error {
	b, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.f.Write(append(b, '\n'))
	return err
}

// describe takes from a request what may be written down.
func (e *line) describe(req any) {
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		e.Volume = r.GetVolumeId()
	} else if r, ok := req.(interface{ GetName() string }); ok {
		e.Volume = r.GetName()
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		e.Node = r.GetNodeId()
	}
	switch r := req.(type) {
	case interface{ GetTargetPath() string }:
		e.Path = r.GetTargetPath()
	case interface{ GetVolumePath() string }:
		e.Path = r.GetVolumePath()
	case interface{ GetStagingTargetPath() string }:
		e.Path = r.GetStagingTargetPath()
	}
}
