package hostfile

// This file checks that other users of the node cannot change a file or directory that
// root relies on: the configuration says what is mounted where, and secrets are sent over
// the socket.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Others says what users other than the owner may do with a file.
type Others int

// The values of Others. With MayChange nothing is checked, not even the owner.
const (
	MayChange Others = iota
	MayRead
	MayNothing
)

// CheckTrusted returns why a file cannot be trusted: it belongs neither to root nor to the user of
// this process, or others can do more than they may. The error ends with what to do; the
// caller adds the name of the file.
func CheckTrusted(info fs.FileInfo, others Others) error {
	if others == MayChange {
		return nil
	}
	if err := checkOwner(info); err != nil {
		return err
	}
	mode := info.Mode().Perm()
	switch {
	case others == MayNothing && mode&0o077 != 0:
		return fmt.Errorf("has mode %04o, so that others can read or change it (chmod 0600)", mode)
	case mode&0o022 != 0:
		return fmt.Errorf("has mode %04o, so that others can change it (chmod go-w)", mode)
	}
	return nil
}

// CheckTrustedDir checks that others can neither create nor remove anything in a directory. If
// sticky is true it accepts one like /tmp, where they cannot remove files of others. It
// follows a symbolic link, such as /var/run on many nodes, that belongs to root or to the
// user of this process.
func CheckTrustedDir(path string, sticky bool) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		if err := checkOwner(info); err != nil {
			return fmt.Errorf("%s %w", path, err)
		}
		info, err = os.Stat(path)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no directory", path)
	}
	others := MayRead
	if sticky && info.Mode()&fs.ModeSticky != 0 {
		others = MayChange
	}
	if err := CheckTrusted(info, others); err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	return nil
}

// ReadTrusted reads a trusted regular file of at most limit bytes. It checks the file that it
// has opened. Its errors have nothing of the content; the caller adds the name of the file.
func ReadTrusted(path string, others Others, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0) // a FIFO must not stop us
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if err := CheckTrusted(info, others); err != nil {
		return nil, err
	}
	return ReadLimited(f, limit)
}

// ReadLimited reads at most limit bytes, and fails if there are more.
func ReadLimited(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("larger than %d KiB", limit>>10)
	}
	return data, nil
}
