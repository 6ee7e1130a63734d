//go:build linux

package hostfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's bound (path_resolution(7)).
const maxLinks = 40

// OpenTrustedDir opens an absolute path as O_PATH. No other user than root, and the user of
// this process, can replace what it leads to: each directory above it, from / on, is theirs
// and writable for them alone. In a directory such as /tmp others cannot replace what is
// theirs. A symbolic link that is theirs is followed, along the same rules. The directory
// itself may be another user's.
func OpenTrustedDir(path string) (*os.File, error) {
	w := way{at: -1}
	defer func() { unix.Close(w.at) }()
	if err := w.restart(); err != nil {
		return nil, err
	}
	w.rest = strings.Split(path, "/")
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if name == "" || name == "." {
			continue
		}
		if err := w.step(name); err != nil {
			return nil, err
		}
	}
	fd := w.at
	w.at = -1
	return os.NewFile(uintptr(fd), path), nil
}

// A way is the walk to a directory.
type way struct {
	at    int    // the directory that was reached
	path  string // its path
	rest  []string
	links int
}

func (w *way) enter(fd int, path string) {
	unix.Close(w.at)
	w.at, w.path = fd, path
}

func (w *way) restart() error {
	fd, err := openAt(unix.AT_FDCWD, "/", unix.O_DIRECTORY)
	if err == nil {
		w.enter(fd, "/")
	}
	return err
}

// openEntry does not follow a link. The kernel fires an automount only for O_DIRECTORY,
// which no link can be opened with.
func openEntry(dir int, name string) (int, error) {
	fd, err := openAt(dir, name, unix.O_NOFOLLOW|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		fd, err = openAt(dir, name, unix.O_NOFOLLOW)
	}
	return fd, err
}

// openAt tries again where a signal, such as one of the Go runtime, interrupts it.
func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (w *way) step(name string) error {
	var above, st unix.Stat_t
	if err := unix.Fstat(w.at, &above); err != nil {
		return err
	}
	path := filepath.Join(w.path, name)
	fd, err := openEntry(w.at, name)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = checkWay(w.path, &above, path, &st)
	}
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		defer unix.Close(fd)
		return w.follow(fd)
	}
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = &os.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	w.enter(fd, path)
	return nil
}

func (w *way) follow(link int) error {
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(link, "", text)
	if err != nil {
		return err
	}
	to := string(text[:n])
	w.rest = append(strings.Split(to, "/"), w.rest...)
	if strings.HasPrefix(to, "/") {
		return w.restart()
	}
	return nil
}

// ErrOthers says that others can replace what a path leads to.
var ErrOthers = errors.New("others can replace it")

// checkWay refuses an entry st of a directory that others can replace. A sticky directory
// keeps them from what is another's.
func checkWay(dir string, above *unix.Stat_t, path string, st *unix.Stat_t) error {
	sticky, link := above.Mode&unix.S_ISVTX != 0, st.Mode&unix.S_IFMT == unix.S_IFLNK
	switch {
	case !isOurs(above.Uid):
		return fmt.Errorf("%w: %s belongs to the user with ID %d (chown root)", ErrOthers, dir, above.Uid)
	case above.Mode&0o022 != 0 && !sticky:
		return fmt.Errorf("%w: %s has mode %04o (chmod go-w)", ErrOthers, dir, above.Mode&0o7777)
	case (link || above.Mode&0o022 != 0) && !isOurs(st.Uid):
		return fmt.Errorf("%w: %s belongs to the user with ID %d (chown root)", ErrOthers, path, st.Uid)
	}
	return nil
}

func isOurs(uid uint32) bool {
	return uid == 0 || int(uid) == unix.Geteuid() || IsUnmapped(uid)
}
