package mounter_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// fakeProgram makes a directory for Mounter.Programs with one program. The
// script knows the directory as $dir.
func fakeProgram(t *testing.T, name, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ndir="+dir+"\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A program finds nothing that the environment or the node would have it read:
// mkfs ran in / with all that the kubelet's environment says.
func TestChildIsClosed(t *testing.T) {
	for name, value := range map[string]string{"PATH": "/nonsense", "HOME": "/root", "BLKID_FILE": "/x", "MKE2FS_CONFIG": "/x", "LIBMOUNT_FSTAB": "/x", "PASSWD_FILE": "/x", "https_proxy": "x"} {
		t.Setenv(name, value)
	}
	canary := filepath.Join(t.TempDir(), "canary")
	mustWrite(t, canary, "")
	fd, err := unix.Open(canary, unix.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, name := range []string{"blkid", "mkfs.ext4"} {
		t.Run(name, func(t *testing.T) { testChildIsClosed(t, name) })
	}
}

func TestChildIsLogged(t *testing.T) {
	for script, want := range map[string]bool{"echo /dev/null": false, "exit 3": true} {
		var log strings.Builder
		m := mounter.Mounter{
			Programs: fakeProgram(t, "blkid", script),
			Log:      slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		_, _ = m.FindByTag(t.Context(), "LABEL", "x")
		if got := log.String(); !strings.Contains(got, "msg=ran") || strings.Contains(got, "error=") != want {
			t.Errorf("%s: logged %s", script, got)
		}
	}
}

func testChildIsClosed(t *testing.T, name string) {
	t.Helper()
	dir := fakeProgram(t, name, `
env >$dir/env
ls -A . >$dir/files
touch made 2>$dir/error && echo made >>$dir/files
for f in /proc/$$/fd/*; do readlink $f; done >$dir/fds
exit 2`)
	m := mounter.Mounter{Programs: dir}
	if strings.HasPrefix(name, "mkfs.") {
		testenv.Need(t, "loop", "ext4")
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: newDisk(t, 16*testenv.MiB).device, FSType: "ext4"}, newTarget(t), nil); err == nil {
			t.Fatal("mounted")
		}
	} else if _, err := m.FindByTag(t.Context(), "LABEL", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for v := range strings.FieldsSeq(mustRead(t, dir+"/env")) {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"LC_ALL", "PATH", "HOME", "PWD", "_", "OLDPWD", "SHLVL"}, name) || v == "PATH=/nonsense" || v == "HOME=/root" {
			t.Errorf("the environment has %s", v)
		}
	}
	if got := mustRead(t, dir+"/files"); got != "" {
		t.Errorf("the directory has %s", got)
	}
	if got := mustRead(t, dir+"/error"); got == "" {
		t.Error("a file can be made in the directory")
	}
	if got := mustRead(t, dir+"/fds"); strings.Contains(got, "canary") {
		t.Errorf("the program has the descriptors %s", got)
	}
}

// mkfs.btrfs fails if another process's loop device is detached while it reads
// the mount table.
func TestMkfsBtrfsTripsOverOther(t *testing.T) {
	testenv.Need(t, "btrfs")
	const trip = `n=$(cat $dir/n 2>/dev/null || echo 0); echo $((n+1)) >$dir/n
[ $n -lt %d ] && { echo "ERROR: cannot check mount status of $1: No such device or address" >&2; exit 1; }
PATH=$PATH exec /usr/sbin/mkfs.btrfs "$@"`
	t.Run("and gets up", func(t *testing.T) {
		d, target := newDisk(t, leastSize("btrfs")), newTarget(t)
		m := mounter.Mounter{Programs: fakeProgram(t, "mkfs.btrfs", fmt.Sprintf(trip, 3))}
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "btrfs"}, target, nil); err != nil {
			t.Fatal(err)
		}
		mustUnmount(t, target)
	})
	t.Run("for ever", func(t *testing.T) {
		d, target := newDisk(t, leastSize("btrfs")), newTarget(t)
		m := mounter.Mounter{Programs: fakeProgram(t, "mkfs.btrfs", fmt.Sprintf(trip, 1000))}
		err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "btrfs"}, target, nil)
		requireError(t, err, nil, "cannot check mount status")
		if n := strings.TrimSpace(mustRead(t, m.Programs+"/n")); n != "10" {
			t.Errorf("it was started %s times", n)
		}
	})
	t.Run("for another reason", func(t *testing.T) {
		d, target := newDisk(t, leastSize("btrfs")), newTarget(t)
		m := mounter.Mounter{Programs: fakeProgram(t, "mkfs.btrfs", "echo x >>$dir/n\necho 'ERROR: no' >&2\nexit 1")}
		err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "btrfs"}, target, nil)
		requireError(t, err, nil, "ERROR: no")
		if n := mustRead(t, m.Programs+"/n"); n != "x\n" {
			t.Errorf("it was started %d times", len(n)/2)
		}
	})
}

func BenchmarkChild(b *testing.B) {
	dir := b.TempDir()
	if err := os.Symlink("/bin/true", filepath.Join(dir, "blkid")); err != nil {
		b.Fatal(err)
	}
	m := mounter.Mounter{Programs: dir}
	start := time.Now()
	for b.Loop() {
		_, _ = m.FindByTag(b.Context(), "LABEL", "x")
	}
	b.ReportMetric(float64(time.Since(start).Microseconds())/float64(b.N), "µs/child")
}
