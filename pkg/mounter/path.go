package mounter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckPath refuses what no mount point is called: relative or unclean paths,
// the root, and control characters, which would garble the mount table.
func CheckPath(path string) error {
	switch {
	case path == "":
		return because(ErrUnsafePath, "the path is empty")
	case !filepath.IsAbs(path):
		return because(ErrUnsafePath, "the path is not absolute")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return because(ErrUnsafePath, "the path contains control characters")
	case path == "/":
		return because(ErrUnsafePath, "the path is the root directory")
	case filepath.Clean(path) != path:
		return because(ErrUnsafePath, "the path is not clean (it would be %s)", filepath.Clean(path))
	}
	return nil
}

// pathOf is where an open file is in the mount table, which knows no symbolic links.
func pathOf(f *os.File) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// openBeneath opens rel below root as O_PATH under the given openat2 rules, and closes root.
// Kernels before 5.6 have no openat2; there each component is opened by
// itself without following links, which is stricter and as safe.
func openBeneath(r *os.File, rel string, resolve uint64) (*os.File, error) {
	defer r.Close()
	root := r.Name()
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	fd, err := unix.Openat2(int(r.Fd()), rel, &how)
	for range 10 {
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
		// Something was renamed or mounted meanwhile (openat2(2)).
		fd, err = unix.Openat2(int(r.Fd()), rel, &how)
	}
	if errors.Is(err, unix.ENOSYS) {
		fd, err = walkBeneath(int(r.Fd()), rel)
	}
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, because(ErrUnsafePath, "a symbolic link is on the way below %s", root)
	case errors.Is(err, unix.EXDEV):
		return nil, because(ErrUnsafePath, "it leads out of %s", root)
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: filepath.Join(root, rel), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(root, rel)), nil
}

func walkBeneath(dirfd int, rel string) (int, error) {
	fd, err := unix.Dup(dirfd)
	if err != nil {
		return -1, err
	}
	for part := range strings.SplitSeq(rel, "/") {
		if part == ".." {
			unix.Close(fd)
			return -1, unix.EXDEV
		}
		next, err := unix.Openat(fd, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			unix.Close(next)
			return -1, unix.ELOOP
		}
		fd = next
	}
	return fd, nil
}

func requireDirectory(f *os.File) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		f.Close()
		return nil, unix.ENOTDIR
	}
	return f, nil
}
