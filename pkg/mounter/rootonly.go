package mounter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// outside is the error of a path that no root allows.
func outside(roots []string) error {
	if len(roots) == 0 {
		return because(ErrUnsafePath, "no roots are allowed")
	}
	return because(ErrUnsafePath, "it is below none of the allowed roots (%s)", strings.Join(roots, ", "))
}

// openRootOnly opens a path below one of the roots as O_PATH, through
// directories that only root can write to and no symbolic link. So a process
// that is not root, for example in a pod that sees the same directory, cannot
// replace what was opened.
func openRootOnly(path string, roots []string) (*os.File, error) {
	for _, root := range roots {
		if root == Anywhere {
			return os.OpenFile(path, unix.O_PATH, 0)
		}
		if below(root, path) {
			return walkRootOnly(root, strings.TrimPrefix(strings.TrimPrefix(path, root), "/"))
		}
	}
	return nil, outside(roots)
}

// openRoot opens a root that only root can replace.
func openRoot(root string) (*os.File, error) {
	f, err := hostfile.OpenTrustedDir(root)
	if errors.Is(err, hostfile.ErrOthers) {
		err = because(ErrUnsafePath, "%v", err)
	}
	return f, err
}

// walkRootOnly opens one component after the other.
func walkRootOnly(root, rel string) (*os.File, error) {
	at, err := openRoot(root)
	if err == nil {
		at, err = requireRootOnly(at)
	}
	if err != nil {
		return nil, err
	}
	mount, err := mountOf(int(at.Fd()))
	if err != nil {
		at.Close()
		return nil, err
	}
	for part := range strings.FieldsFuncSeq(rel, func(r rune) bool { return r == '/' }) {
		dir := at
		at, err = openStep(dir, part)
		dir.Close()
		if err == nil {
			at, err = requireRootOnly(at)
		}
		if err != nil {
			return nil, err
		}
	}
	return refuseAutomounts(at, mount)
}

// refuseAutomounts closes what is opened below a root, which is on a mount with an ID, where an
// automount shows it: the map says what that is, not the administrator who named the root.
// RESOLVE_NO_XDEV would refuse disks that are mounted below a root, too.
func refuseAutomounts(f *os.File, root uint64) (*os.File, error) {
	at, err := mountOf(int(f.Fd()))
	var fs unix.Statfs_t
	if err == nil && at == root {
		err = unix.Fstatfs(int(f.Fd()), &fs)
	}
	if err == nil && (at != root || fs.Type == unix.AUTOFS_SUPER_MAGIC) {
		err = requireNoAutomount(at, root)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// requireNoAutomount looks at a mount and those that it is on, down to that of a root.
func requireNoAutomount(at, root uint64) error {
	table, err := Mounts(nil)
	if err != nil {
		return err
	}
	for {
		n := slices.IndexFunc(table, func(i *Info) bool { return uint64(i.ID) == at })
		switch {
		case n < 0:
			return fmt.Errorf("mount %d is not in the mount table", at)
		case table[n].FSType == "autofs":
			return because(ErrUnsafePath, "an automount shows what is there (%s); name its directory as a root", table[n].Mountpoint)
		case at == root:
			return nil
		}
		at = uint64(table[n].Parent)
	}
}

func openStep(dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	if name == ".." {
		return nil, because(ErrUnsafePath, "it leads out of its root")
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// requireRootOnly refuses symbolic links, and files that other users than root own or
// can write to. It closes what it refuses.
func requireRootOnly(f *os.File) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	switch kind := st.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFLNK:
		err = because(ErrUnsafePath, "%s is a symbolic link, which is not followed here", f.Name())
	case kind != unix.S_IFDIR && kind != unix.S_IFREG:
	case st.Uid != 0:
		err = because(ErrUnsafePath, "%s belongs to user %d, who could replace what is there; chown root %s", f.Name(), st.Uid, f.Name())
	case st.Mode&0o022 != 0:
		err = because(ErrUnsafePath, "%s can be written to by others than root (mode %#o); chmod go-w %s", f.Name(), st.Mode&0o7777, f.Name())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// MakeRootOnlyDir makes a directory that only root can enter directly below a
// root, unless it exists. The root must exist: one that is missing may be on a
// disk that is not mounted yet.
func (m *Mounter) MakeRootOnlyDir(root, name string) error {
	fail := func(err error) error {
		return &Error{Op: "make directory", Source: filepath.Join(root, name), Err: err}
	}
	dir, err := walkRootOnly(root, "")
	if errors.Is(err, os.ErrNotExist) {
		return fail(fmt.Errorf("%w (is the disk that should hold it mounted?)", err))
	}
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fail(err)
	}
	return nil
}
