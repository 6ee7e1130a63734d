package volumelog

import (
	"log/slog"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

const journalSocket = "/run/systemd/journal/socket"

// OpenCallLog returns a logger that appends JSON lines to a file, one write for each
// so that calls side by side do not mix theirs, or that writes to the journal under a name. All
// have the keys and values of about.
// With an error the logger is silent.
func OpenCallLog(name, file string, level slog.Level, redact func(string) string, about ...any) (*slog.Logger, func(), error) {
	if file == Journal {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return slog.New(slog.DiscardHandler), func() {}, err
		}
		return NewCallLog(journal{fd, name}, level, redact, about...), func() { unix.Close(fd) }, nil
	}
	// O_NONBLOCK: a pipe in place of the file must not stop the call.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return slog.New(slog.DiscardHandler), func() {}, err
	}
	log := slog.New(slog.NewJSONHandler(unbuffered{f}, options(level, redact))).With("pid", os.Getpid()).With(about...)
	klog.SetSlogLogger(log)
	return log, func() { f.Close() }, nil
}

// unbuffered writes at once or not at all. An os.File would wait for the reader
// of a pipe that is full.
type unbuffered struct{ *os.File }

func (u unbuffered) Write(p []byte) (n int, err error) {
	conn, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := conn.Control(func(fd uintptr) { n, err = unix.Write(int(fd), p) })
	if controlErr != nil {
		return 0, controlErr
	}
	return n, err
}

// journal sends each write as one entry (systemd, "Native Journal Protocol").
// It is a bare socket because package net would be a tenth of the program.
type journal struct {
	fd   int
	name string
}

func (j journal) Write(p []byte) (int, error) {
	entry := "MESSAGE=" + strings.ReplaceAll(strings.TrimSpace(string(p)), "\n", " ") +
		"\nPRIORITY=6\nSYSLOG_IDENTIFIER=" + j.name + "\nSYSLOG_PID=" + strconv.Itoa(os.Getpid()) + "\n"
	if err := unix.Sendto(j.fd, []byte(entry), 0, &unix.SockaddrUnix{Name: journalSocket}); err != nil {
		return 0, err
	}
	return len(p), nil
}
