package mounter

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/flex2csi/flex2csi/internal/guard"
)

// A Mounter makes and removes mounts. The zero value is ready to use and
// silent. It holds no state; any number may work side by side.
type Mounter struct {
	// Log receives what is done, at debug level, and what is surprising, at
	// warning level. Nil is silent.
	Log *slog.Logger

	// Classic keeps to mount(2) even where the kernel could prepare a
	// detached mount. It is what happens by itself on kernels before 5.12; the
	// field is for tests and for people who must compare.
	Classic bool

	// Programs is a directory where programs are looked for before those of the
	// system, for tests.
	Programs string
}

func (m *Mounter) log() *slog.Logger {
	if m.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return m.Log
}

// An Error says what was being done to what. Its text alone is enough to
// repeat the operation by hand; values of options that look like credentials
// are masked in it.
type Error struct {
	Op      string // mount, unmount, probe, format, check, grow, attach, …
	Source  string // device, image, directory or remote name
	Target  string // mount point
	FSType  string
	Options []string
	Err     error
}

// Error is one line: op, then what it was done to, then why it failed.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Source != "" {
		fmt.Fprintf(&b, " %s", printable(e.Source))
	}
	if e.FSType != "" {
		fmt.Fprintf(&b, " (%s)", e.FSType)
	}
	if e.Target != "" {
		if e.Source != "" {
			b.WriteString(" at")
		}
		fmt.Fprintf(&b, " %s", printable(e.Target))
	}
	if len(e.Options) > 0 {
		fmt.Fprintf(&b, " with options %s", strings.Join(guard.MaskOptions(e.Options), ","))
	}
	fmt.Fprintf(&b, ": %s", oneLine(e.Err.Error()))
	return b.String()
}

// oneLine joins the lines of what programs say.
func oneLine(s string) string {
	var lines []string
	for line := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// printable quotes a path that would garble a message.
func printable(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		return strconv.Quote(s)
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Causes that a caller may want to tell apart, with errors.Is.
var (
	// ErrWrongFilesystem: the disk holds another filesystem than was asked
	// for, or data that is none. It is never formatted over.
	ErrWrongFilesystem = errors.New("wrong content")
	// ErrNotFormatted: the disk is empty and may not be formatted, because it
	// is to be mounted read-only.
	ErrNotFormatted = errors.New("not formatted")
	// ErrBusy: something else holds the device or uses the mount.
	ErrBusy = errors.New("busy")
	// ErrOccupied: another mount is at the target already.
	ErrOccupied = errors.New("occupied")
	// ErrReadOnly: the device, image or server cannot be written to.
	ErrReadOnly = errors.New("read-only")
	// ErrUnsafePath: a path that is not clean, leaves its root or leads
	// through a symbolic link.
	ErrUnsafePath = errors.New("unsafe path")
	// ErrTooLarge: the size is more than the filesystem or memory can hold.
	ErrTooLarge = errors.New("too large")
	// ErrSilent: no answer came in time, which is no proof of death: a server that
	// fails over takes a minute. It is an os.ErrDeadlineExceeded.
	ErrSilent = fmt.Errorf("the server or device behind it does not answer: %w", os.ErrDeadlineExceeded)
)

// hintedError adds what to do next to a cause.
type hintedError struct {
	kind error // one of the Err values above, as a rule
	text string
}

func (e *hintedError) Error() string { return e.text }
func (e *hintedError) Unwrap() error { return e.kind }

// because makes an error of the given kind with a text of its own.
func because(kind error, format string, args ...any) error {
	return &hintedError{kind: kind, text: fmt.Sprintf(format, args...)}
}
