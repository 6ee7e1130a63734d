package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// memory returns a directory on a filesystem of its own, which takes any tree
// with it when the test ends: os.RemoveAll needs a descriptor for each level.
func memory(t testing.TB) string {
	t.Helper()
	testenv.Need(t, "root", "mount")
	dir := t.TempDir()
	if err := unix.Mount("walk", dir, "tmpfs", 0, "size=2g,nr_inodes=2m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// nest makes directories in each other, and calls fill in each that has one.
func nest(t *testing.T, root, name string, depth int, fill func(dir int)) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if fill != nil {
			fill(fd)
		}
		var next int
		if err = unix.Mkdirat(fd, name, 0o755); err == nil {
			next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// files makes some in a directory.
func files(t *testing.T, prefix string, count int) func(dir int) {
	return func(dir int) {
		for i := range count {
			if err := unix.Mknodat(dir, fmt.Sprintf("%s-%d", prefix, i), unix.S_IFREG|0o600, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// requireGroup goes down, and checks everything on the way. It returns how much
// that was.
func requireGroup(t *testing.T, root, name string, gid int) (entries int) {
	t.Helper()
	dir, err := os.Open(root)
	for err == nil {
		var all []fs.DirEntry
		if all, err = dir.ReadDir(-1); err != nil {
			break
		}
		for _, e := range all {
			entries++
			var st unix.Stat_t
			if err := unix.Fstatat(int(dir.Fd()), e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || int(st.Gid) != gid || st.Mode&0o660 != 0o660 {
				t.Fatalf("entry %d, %.20q, has group %d and mode %o, %v", entries, e.Name(), st.Gid, st.Mode, err)
			}
		}
		var fd int
		fd, err = unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		dir.Close()
		dir = os.NewFile(uintptr(fd), "below")
	}
	if !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	return entries
}

// fewDescriptors leaves this process no more than so many until the test ends.
func fewDescriptors(t *testing.T, more int) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open) + more), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
}

// allocated is how much memory f asks for, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A pod that nests 2,200 directories with long names ended the daemon, which
// took 646 MB for their paths, and a descriptor for each.
func TestSetGroupDeep(t *testing.T) {
	const gid, depth = 4250, 4000
	root, name := memory(t), strings.Repeat("x", 250)
	nest(t, root, name, depth, files(t, "file", 1))
	t.Run("descriptors", func(t *testing.T) {
		fewDescriptors(t, 48)
		setGroup(t.Context(), t, root, gid, nil)
	})
	if n := requireGroup(t, root, name, gid); n != 2*depth {
		t.Errorf("%d entries, want %d", n, 2*depth)
	}
	if bytes := allocated(func() { setGroup(t.Context(), t, root, gid+1, nil) }); bytes > 16*testenv.MiB {
		t.Errorf("it asked for %d MiB of memory", bytes/testenv.MiB)
	}
	requireGroup(t, root, name, gid+1)
}

// Where a directory is closed and opened again, it is read on where it was left.
func TestSetGroupDeepAndWide(t *testing.T) {
	const gid, depth, wide = 4251, 50, 100
	long := strings.Repeat("x", 200) // 100 of these are more than is read at once
	check := func(t *testing.T, root string) {
		for i := range 2 { // files before the directories, and behind them
			nest(t, root, fmt.Sprintf("d%d", i), depth, files(t, fmt.Sprintf("%s%d", long, i), wide/2))
		}
		setGroup(t.Context(), t, root, gid, nil)
		if n := requireGroup(t, root, "d0", gid) + requireGroup(t, root, "d1", gid); n < depth*wide {
			t.Errorf("%d entries, want %d", n, depth*wide)
		}
	}
	t.Run("tmpfs", func(t *testing.T) { check(t, memory(t)) })
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			testenv.Need(t, "root", fsType)
			d, target := newDisk(t, 300*testenv.MiB), newTarget(t)
			mustRun(t, "mkfs."+fsType, d.device)
			if err := (&mounter.Mounter{}).MountDisk(t.Context(), mounter.Disk{Device: d.device}, target, nil); err != nil {
				t.Fatal(err)
			}
			defer mustUnmount(t, target)
			check(t, target.Path())
		})
	}
}

// More levels than can be of use end the walk, with a reason.
func TestSetGroupTooDeep(t *testing.T) {
	root := memory(t)
	nest(t, root, "d", 1<<14, nil)
	f, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fewDescriptors(t, 48)
	bytes := allocated(func() { err = (&mounter.Mounter{}).SetGroup(t.Context(), f, 4252) })
	if err == nil || !strings.Contains(err.Error(), "more than 16384 directories in each other") || bytes > 32*testenv.MiB {
		t.Errorf("%d MiB of memory, %v", bytes/testenv.MiB, err)
	}
}

// What is mounted in a volume is not part of it.
func TestSetGroupStaysInItsMount(t *testing.T) {
	const gid = 4253
	root := memory(t)
	for _, path := range []string{"dir", "outside", "outside/below", "target", "dir/target"} {
		mustMkdir(t, filepath.Join(root, path))
	}
	file := filepath.Join(root, "file")
	mustWrite(t, file, "")
	other := t.TempDir()
	mustWrite(t, filepath.Join(other, "secret"), "")
	for target, source := range map[string]string{filepath.Join(root, "target"): other, filepath.Join(root, "dir/target"): other, file: filepath.Join(other, "secret")} {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(target, unix.MNT_DETACH) }()
	}
	setGroup(t.Context(), t, root, gid, nil)
	for path, want := range map[string]uint32{other: 0, filepath.Join(other, "secret"): 0, filepath.Join(root, "dir"): gid} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Gid != want {
			t.Errorf("%s has group %d, want %d, %v", path, st.Gid, want, err)
		}
	}
}

// meanwhile is a context that does something at each step of the walk.
type meanwhile struct {
	context.Context
	do func()
}

func (m meanwhile) Err() error { m.do(); return nil }

// movedTree is one that is so deep that directories are closed on the way down;
// bottom is its lowest file, and middle a directory half-way.
func movedTree(t *testing.T) (root, middle, bottom string) {
	t.Helper()
	const depth = 100
	root = memory(t)
	nest(t, root, "d", depth, files(t, "file", 3))
	path := filepath.Join(root, strings.Repeat("d/", depth-1))
	return root, filepath.Join(root, strings.Repeat("d/", depth/4)), filepath.Join(path, "file-0")
}

func groupOf(path string) int {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return -1
	}
	return int(st.Gid)
}

// A directory that is moved during the walk does not lead out of the volume.
func TestSetGroupMoved(t *testing.T) {
	const gid = 4254
	root, middle, bottom := movedTree(t)
	outside := filepath.Join(filepath.Dir(root), "outside")
	mustMkdir(t, outside)
	for i := range 50 {
		mustWrite(t, filepath.Join(outside, fmt.Sprintf("secret-%d", i)), "")
	}
	moved := false
	ctx := meanwhile{t.Context(), func() {
		if !moved && groupOf(bottom) == gid {
			moved = true
			if err := os.Rename(middle, filepath.Join(outside, "moved")); err != nil {
				t.Error(err)
			}
		}
	}}
	setGroup(ctx, t, root, gid, nil)
	if !moved {
		t.Fatal("the walk did not get down")
	}
	all, err := filepath.Glob(outside + "/secret-*")
	if err != nil || len(all) != 50 {
		t.Fatal(all, err)
	}
	for _, path := range append(all, outside) {
		if got := groupOf(path); got != 0 {
			t.Errorf("%s has group %d", path, got)
		}
	}
	if n := requireGroup(t, root, "d", gid); n < 90 {
		t.Errorf("%d entries are left", n)
	}
}

// Those who move directories all the time do not keep the walk going for ever,
// nor have it taken for finished.
func TestSetGroupMovedForEver(t *testing.T) {
	const gid = 4255
	root, middle, bottom := movedTree(t)
	here, there := filepath.Dir(strings.TrimSuffix(middle, "/")), filepath.Join(root, "there")
	mustMkdir(t, there)
	moves := 0
	at := bottom
	ctx := meanwhile{t.Context(), func() {
		if groupOf(at) != gid {
			return
		}
		moves++
		from, to := filepath.Join(here, "d"), filepath.Join(there, "d")
		at = strings.Replace(bottom, from, to, 1)
		if moves%2 == 0 {
			from, to, at = to, from, bottom
		}
		if err := errors.Join(os.Rename(from, to), os.Chown(at, -1, 0)); err != nil {
			t.Error(err)
		}
	}}
	setGroup(ctx, t, root, gid, mounter.ErrBusy)
	if moves != 5 {
		t.Errorf("%d walks", moves)
	}
	if got := groupOf(root); got == gid {
		t.Error("the root has the group, so that nothing is done again")
	}
}

// BenchmarkSetGroup walks a plain tree of 100,000 files.
func BenchmarkSetGroup(b *testing.B) {
	root := memory(b)
	for i := range 1000 {
		dir := filepath.Join(root, fmt.Sprint(i%10), fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := unix.Mknod(filepath.Join(dir, fmt.Sprint(j)), unix.S_IFREG|0o600, 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	gid := 5000
	for b.Loop() {
		f, err := os.Open(root)
		if err != nil {
			b.Fatal(err)
		}
		gid++
		if err := (&mounter.Mounter{}).SetGroup(b.Context(), f, gid); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
