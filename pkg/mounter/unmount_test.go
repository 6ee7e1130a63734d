package mounter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestUnmount(t *testing.T) {
	testenv.Need(t, "mount")
	tmpfs := func(t *testing.T, path string) {
		t.Helper()
		mustMkdir(t, path)
		if err := unix.Mount("test", path, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, prepare := range map[string]func(t *testing.T, path string){
		"not mounted": func(*testing.T, string) {},
		"missing": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"a file": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, path, "")
		},
		"link to a mount": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			other := newTarget(t)
			tmpfs(t, other.Path())
			t.Cleanup(func() {
				requireMounts(t, other.Path(), 1)
				mustUnmount(t, other)
			})
			if err := os.Symlink(other.Path(), path); err != nil {
				t.Fatal(err)
			}
		},
		"mounted": tmpfs,
		"stacked": func(t *testing.T, path string) {
			for range 5 {
				tmpfs(t, path)
			}
		},
		"mounts below": func(t *testing.T, path string) {
			tmpfs(t, path)
			tmpfs(t, path+"/a")
			tmpfs(t, path+"/a/b c")
			tmpfs(t, path+"/z")
			tmpfs(t, path+"/z")
		},
		"stacked, with mounts below each": func(t *testing.T, path string) {
			for range 3 {
				tmpfs(t, path)
				tmpfs(t, path+"/below")
			}
		},
		"on a file": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, path, "")
			if err := unix.Mount("/etc/hostname", path, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget(t)
			prepare(t, target.Path())
			var m mounter.Mounter
			for range 2 { // again is success, too
				if err := m.Unmount(t.Context(), target); err != nil {
					t.Fatal(err)
				}
				requireMounts(t, target.Path(), 0)
			}
		})
	}
}

// Mounts next to the target with names that begin like its own stay.
func TestUnmountLeavesNeighbours(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	dir := newDir(t)
	mustMkdir(t, filepath.Join(dir, "real"))
	link := filepath.Join(dir, "kubelet")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vol", "vol/below", "vol-2", "vol 3"} {
		mustMkdir(t, filepath.Join(link, name))
		if err := unix.Mount("test", filepath.Join(link, name), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Unmount(t.Context(), openTarget(t, link, filepath.Join(link, "vol"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"vol": 0, "vol-2": 1, "vol 3": 1} {
		requireMounts(t, filepath.Join(link, name), want)
	}
	for _, name := range []string{"vol-2", "vol 3"} {
		mustUnmount(t, openTarget(t, link, filepath.Join(link, name)))
	}
}

// Who uses a mount is named, and the mount stays until he is done.
func TestUnmountBusy(t *testing.T) {
	testenv.Need(t, "mount")
	for name, use := range map[string]func(t *testing.T, path string) (text string, stop func()){
		"working directory": func(t *testing.T, path string) (string, func()) {
			cmd := exec.Command("sleep", "60")
			cmd.Dir = path
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("used by sleep (pid %d, working directory)", cmd.Process.Pid), func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		},
		"open file": func(t *testing.T, path string) (string, func()) {
			f, err := os.Create(filepath.Join(path, "file"))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("(pid %d, open file)", os.Getpid()), func() { f.Close() }
		},
		"open file below": func(t *testing.T, path string) (string, func()) {
			below := filepath.Join(path, "below")
			mustMkdir(t, below)
			if err := unix.Mount("test", below, "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(filepath.Join(below, "file"))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("(pid %d, open file)", os.Getpid()), func() { f.Close() }
		},
		"loop device": func(t *testing.T, path string) (string, func()) {
			testenv.Need(t, "loop")
			image := filepath.Join(path, "disk.img")
			mustWrite(t, image, "")
			if err := os.Truncate(image, 1<<20); err != nil {
				t.Fatal(err)
			}
			loop, err := attach(t.Context(), &mounter.Mounter{}, image)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("used by %s (loop device of %s)", loop.Device, image), func() { loop.Close() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for what does not come
			var m mounter.Mounter
			target := newTarget(t)
			if err := m.Memory(t.Context(), 16*testenv.MiB, target, nil, nil); err != nil {
				t.Fatal(err)
			}
			defer mustUnmount(t, target)
			text, stop := use(t, target.Path())
			defer stop()
			err := m.Unmount(t.Context(), target)
			requireError(t, err, mounter.ErrBusy, "unmount "+target.Path(), text)
			requireMounts(t, target.Path(), 1)
		})
	}
}

func TestUnmountBusyForAMoment(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	target := newTarget(t)
	if err := m.Memory(t.Context(), testenv.MiB, target, nil, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(target.Path(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(100*time.Millisecond, func() { f.Close() })
	defer timer.Stop()
	mustUnmount(t, target)
}

// A call that was interrupted must not take away, by force, what is in use.
func TestUnmountInterrupted(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	target := newTarget(t)
	if err := m.Memory(t.Context(), testenv.MiB, target, nil, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(target.Path(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	requireError(t, m.Unmount(ctx, target), context.Canceled, "unmount "+target.Path())
	requireMounts(t, target.Path(), 1)
	late, cancelLate := context.WithDeadline(t.Context(), time.Now())
	defer cancelLate()
	requireError(t, m.Unmount(late, target), context.DeadlineExceeded, "unmount "+target.Path())
	requireMounts(t, target.Path(), 1)
	f.Close()
	mustUnmount(t, target)
}

// TestUnmountLocked is about what the kernel says of a mount that came from a
// more privileged namespace: the same as of what is no mount. The test runs
// itself in such a namespace.
func TestUnmountLocked(t *testing.T) {
	testenv.Need(t, "mount")
	const envPath = "MOUNTER_TEST_LOCKED"
	var m mounter.Mounter
	if path := os.Getenv(envPath); path != "" {
		target := openTarget(t, "", path)
		requireError(t, m.Unmount(t.Context(), target), unix.EINVAL, "unmount "+path, "another mount namespace")
		return
	}
	target := newTarget(t)
	if err := m.Memory(t.Context(), testenv.MiB, target, nil, nil); err != nil {
		t.Fatal(err)
	}
	defer mustUnmount(t, target)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestUnmountLocked$")
	cmd.Env = append(os.Environ(), envPath+"="+target.Path())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A dead server (ENOTCONN) is no reason to fail, also if a process has a
// file of it open: no operation of that process can succeed.
func TestUnmountDeadFUSE(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := newTarget(t)
			server := mountFUSE(t, target.Path(), "fuse", "dead")
			if busy {
				fd, err := unix.Open(target.Path(), unix.O_PATH|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
			}
			server.die()
			var st unix.Stat_t
			if err := unix.Stat(target.Path(), &st); err != unix.ENOTCONN {
				t.Fatalf("stat of a dead server: %v", err)
			}
			if mounted, err := target.Mounted(); !mounted || err != nil {
				t.Errorf("Mounted is %t, %v", mounted, err)
			}
			if info, err := target.Info(); err != nil || info == nil || info.Source != "dead" {
				t.Errorf("Info is %v, %v", info, err)
			}
			mustUnmount(t, target)
		})
	}
}

// soon says that there is little time, and then takes none away: on a machine
// that is busy the test takes longer, and is none the worse for it.
type soon struct {
	context.Context
	deadline time.Time
}

func (s soon) Deadline() (time.Time, bool) { return s.deadline, true }

// A server that does not answer delays the call for at most half of the time that
// it has.
func TestUnmountHungFUSE(t *testing.T) {
	for name, tt := range map[string]struct {
		busy, below, interrupted bool
	}{
		"idle":        {},
		"busy":        {busy: true},
		"busy below":  {busy: true, below: true},
		"interrupted": {busy: true, interrupted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m mounter.Mounter
			target := newTarget(t)
			server := mountFUSE(t, target.Path(), "fuse", "hung")
			if tt.below { // a second mount of the server, in the way
				if err := unix.Mount(target.Path(), target.Path(), "", unix.MS_BIND, ""); err != nil {
					t.Fatal(err)
				}
			}
			server.fallSilent(t)
			if tt.busy {
				server.hangOn(t)
			}
			if mounted, err := target.Mounted(); !mounted || err != nil {
				t.Errorf("Mounted is %t, %v", mounted, err)
			}
			requireError(t, target.Health(t.Context(), 10*time.Millisecond), mounter.ErrSilent)
			ctx, cancel := context.WithCancel(soon{t.Context(), time.Now().Add(2 * time.Second)})
			defer cancel()
			if tt.interrupted {
				cancel()
			}
			err := m.Unmount(ctx, target)
			if tt.interrupted {
				requireError(t, err, context.Canceled)
				requireMounts(t, target.Path(), 1)
				server.die()
				mustUnmount(t, target)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			requireMounts(t, target.Path(), 0)
		})
	}
}

// TestUnmountSharedHung: several pods had one share, and its server was away for
// half a minute. The unmount of one of them was forced, and force aborts what is
// under way on the superblock: the other pods got errors, and those of FUSE lost
// their mounts for good.
func TestUnmountSharedHung(t *testing.T) {
	t.Parallel()
	var m mounter.Mounter
	target, other := newTarget(t), newTarget(t)
	server := mountFUSE(t, target.Path(), "fuse", "hung")
	if err := unix.Mount(target.Path(), other.Path(), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	server.fallSilent(t)
	server.hangOn(t) // which keeps the target busy
	if err := m.Unmount(soon{t.Context(), time.Now().Add(2 * time.Second)}, target); err != nil {
		t.Fatal(err)
	}
	requireMounts(t, target.Path(), 0)
	requireMounts(t, other.Path(), 1)
	server.silent.Store(false)
	var st unix.Statfs_t
	if err := unix.Statfs(other.Path(), &st); err != nil {
		t.Errorf("the other mount of the filesystem: %v", err)
	}
	mustUnmount(t, other)
}

// umount(2) itself waits for a server that has a block device.
func TestUnmountHangs(t *testing.T) {
	testenv.Need(t, "loop", "fuse")
	t.Parallel()
	var m mounter.Mounter
	d, target := newDisk(t, testenv.MiB), newTarget(t)
	server := mountFUSE(t, target.Path(), "fuseblk", d.device)
	server.fallSilent(t)
	if err := m.Unmount(soon{t.Context(), time.Now().Add(2 * time.Second)}, target); err != nil {
		t.Fatal(err)
	}
	if opcode := <-server.asked; opcode != fuseDestroy {
		t.Errorf("the server was asked for %d, not to end: umount(2) did not hang", opcode)
	}
	requireMounts(t, target.Path(), 0)
	// The device is not free, and the call must not report that it is.
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()
	requireError(t, mounter.WaitDetached(short, d.device, ""), mounter.ErrBusy, d.device, "still in use")
	server.die()
	if err := mounter.WaitDetached(t.Context(), d.device, ""); err != nil {
		t.Error(err)
	}
}
