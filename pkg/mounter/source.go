package mounter

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A source is what a mount is made from.
type source struct {
	fsType  string // "" for a bind
	device  string // the filesystem's source; for messages where bind is set
	bind    *os.File
	options mountOptions
	given   []string // the options as they were given, for messages
}

func (s source) err(op, target string, err error) error {
	return &Error{Op: op, Source: deviceName(s.device), Target: target, FSType: s.fsType, Options: s.given, Err: err}
}

func notWritable(err error) error {
	return fmt.Errorf("it is mounted read-only elsewhere on this node and cannot be made writable: %w", err)
}

func unknownFilesystem(fsType string) error {
	return fmt.Errorf("the kernel of this node knows no filesystem %q (is its module there?)", fsType)
}

// takeBack removes a mount of ours that turned out not to be what it should.
func (m *Mounter) takeBack(t *Target) {
	if err := unix.Unmount(t.handle(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
		m.log().Warn("a failed mount could not be taken back", "target", t.path, "error", err)
	}
}
