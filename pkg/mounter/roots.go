package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Anywhere is the root that allows every path of the node. It is for callers
// that choose the paths themselves: the directories on the way are not checked.
const Anywhere = "/"

// Roots bound what may be opened.
type Roots struct {
	// Below are directories: what is opened is one of them, or lies below one. [Anywhere]
	// allows all, and then nothing is compared.
	Below []string
	// Apart are directories which the root that a path is below must show nothing of, nor be
	// shown by, whatever links and bind mounts lead to them. That root itself may be among
	// them. One that does not exist shows nothing. One that cannot be opened does not keep
	// others from use: it is compared by its name.
	Apart []string
}

// check compares the root that path is below with the others. What is mounted below the
// roots matters only where it shows what is opened: a bind mount of what is above it does
// not. So the mount table, which may have 10,000 entries, is the last resort. What does not
// exist yet is nil.
func (r Roots) check(ctx context.Context, path string, opened *os.File) error {
	root := r.above(path)
	others := slices.DeleteFunc(slices.Clone(r.Apart), func(other string) bool { return other == root })
	if root == Anywhere || len(others) == 0 {
		return nil
	}
	own, err := openRoot(root)
	if err != nil {
		return err
	}
	defer own.Close()
	if (opened == nil || sameMount(own, opened)) && !slices.ContainsFunc(others, func(other string) bool { return !plainlyApart(ctx, own, other) }) {
		return nil
	}
	return checkApart(ctx, root, others)
}

// above returns the root that a path is below.
func (r Roots) above(path string) string {
	if i := slices.IndexFunc(r.Below, func(root string) bool { return below(root, path) }); i >= 0 {
		return r.Below[i]
	}
	return Anywhere
}

func sameMount(a, b *os.File) bool {
	x, errA := mountOf(int(a.Fd()))
	y, errB := mountOf(int(b.Fd()))
	return errA == nil && errB == nil && x == y
}

// plainlyApart reports whether two roots can be told apart without the mount table: they are
// side by side on one mount, or on different filesystems.
func plainlyApart(ctx context.Context, root *os.File, path string) bool {
	apart := false
	err := within(ctx, otherWait, func() error {
		other, err := openRoot(path)
		if err != nil {
			return err
		}
		defer other.Close()
		if !sameMount(root, other) {
			apart = otherFilesystem(root, other)
			return nil
		}
		a, errA := pathOf(root)
		b, errB := pathOf(other)
		apart = errA == nil && errB == nil && !location{"", a}.nested(location{"", b})
		return nil
	})
	return err == nil && apart || errors.Is(err, fs.ErrNotExist)
}

// otherFilesystem reports whether two files are certainly on different filesystems. A btrfs
// or a server of NFS has several device numbers for what one mount can show.
func otherFilesystem(a, b *os.File) bool {
	var x, y unix.Statfs_t
	var s, t unix.Stat_t
	if errors.Join(unix.Fstatfs(int(a.Fd()), &x), unix.Fstatfs(int(b.Fd()), &y), unix.Fstat(int(a.Fd()), &s), unix.Fstat(int(b.Fd()), &t)) != nil {
		return false
	}
	oneNumber := slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC}, int64(x.Type)) //nolint:unconvert // it is of 32 bits elsewhere
	return x.Type != y.Type || oneNumber && s.Dev != t.Dev
}

// checkApart compares all that the mount table says of the roots.
func checkApart(ctx context.Context, root string, others []string) error {
	table, err := Mounts(nil)
	if err != nil {
		return err
	}
	own, err := locationsOf(root, table)
	if err != nil || own == nil {
		return err
	}
	for _, other := range others {
		places, err := locationsOfOther(ctx, other, table)
		if err != nil {
			return &Error{Op: "compare roots", Source: root, Err: fmt.Errorf("compare with root %s: %w; mend or remove that root", other, err)}
		}
		for _, p := range places {
			if slices.ContainsFunc(own, p.nested) {
				return &Error{Op: "compare roots", Source: root, Err: because(ErrUnsafePath, "it and the root %s are not apart: one shows what is below the other; name another directory for one of them", other)}
			}
		}
	}
	return nil
}

// A location is a directory of a filesystem, or, without a filesystem, a path.
type location struct{ filesystem, path string }

func (p location) nested(q location) bool {
	return p.filesystem == q.filesystem && (below(p.path, q.path) || below(q.path, p.path))
}

// otherWait is how long another root may take to open.
const otherWait = 2 * time.Second

// locationsOfOther is [locationsOf] for a root that the call does not mount.
func locationsOfOther(ctx context.Context, dir string, table []*Info) ([]location, error) {
	opened := make(chan *os.File, 1)
	err := within(ctx, otherWait, func() error {
		f, err := openRoot(dir)
		opened <- f
		return err
	})
	switch {
	case err == nil:
		return locationsIn(<-opened, table)
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	}
	return locationsBelow(filepath.Clean(dir), mountAbove(dir, table), table)
}

// locationsOf returns what can be seen at a directory: its own place, and those that are
// mounted below it.
func locationsOf(dir string, table []*Info) ([]location, error) {
	f, err := openRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return locationsIn(f, table)
}

// locationsIn closes the directory.
func locationsIn(f *os.File, table []*Info) ([]location, error) {
	defer f.Close()
	path, errPath := pathOf(f)
	mount, errMount := mountOf(int(f.Fd()))
	if err := firstError(errPath, errMount); err != nil {
		return nil, err
	}
	return locationsBelow(path, int(mount), table)
}

// mountAbove returns the ID of the mount that a path is on, without asking its filesystem.
func mountAbove(path string, table []*Info) (mount int) {
	longest := ""
	for _, i := range table {
		if below(i.Mountpoint, path) && len(i.Mountpoint) >= len(longest) {
			longest, mount = i.Mountpoint, i.ID
		}
	}
	return mount
}

func locationsBelow(path string, mount int, table []*Info) ([]location, error) {
	places := []location{{"", path}}
	for _, i := range table {
		if i.ID == mount {
			rel, err := filepath.Rel(i.Mountpoint, path)
			if err != nil {
				return nil, err
			}
			places = append(places, locationOn(i, rel))
		} else if below(path, i.Mountpoint) {
			places = append(places, locationOn(i, "."))
		}
	}
	return places, nil
}

// locationOn: the mounts of a server may share their device number, and the kernel shows "/"
// as the root of each, so only the source tells which export it is.
func locationOn(i *Info, rel string) location {
	if host, export, found := strings.Cut(i.Source, ":/"); found && (i.FSType == "nfs" || i.FSType == "nfs4") {
		return location{"nfs " + host, filepath.Join("/", export, i.Root, rel)}
	}
	return location{fmt.Sprintf("%d:%d", i.Major, i.Minor), filepath.Join(i.Root, rel)}
}
