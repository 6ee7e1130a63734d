package mounter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// An overlay of many layers, as a container runtime makes it, has a line of
// 100 KB in the mount table, with which no unmount succeeded any more.
func TestMountsLongLine(t *testing.T) {
	testenv.Need(t, "root", "mount")
	layers, overlay, target := newDir(t), newTarget(t), newTarget(t)
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for i := range 400 {
		dir := filepath.Join(layers, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 200)))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.FsconfigSetString(fd, "lowerdir+", dir); err != nil {
			t.Skipf("the overlay of this kernel takes no lowerdir+: %v", err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		t.Fatal(err)
	}
	tree, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, overlay.Path(), unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err := firstOf(err, unix.Close(tree)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(overlay.Path(), 0); err != nil {
			t.Error(err)
		}
	}()
	var m mounter.Mounter
	if err := m.Memory(t.Context(), testenv.MiB, target, []string{"ro"}, nil); err != nil { // after it in the table
		t.Fatal(err)
	}
	for _, at := range []*mounter.Target{overlay, target} {
		if info, err := at.Info(); err != nil || info == nil || info.Mountpoint != at.Path() {
			t.Errorf("%s: %+v, %v", at.Path(), info, err)
		}
	}
	all, err := mounter.Mounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(table), "\n"); len(all) != lines {
		t.Errorf("%d mounts, and %d lines in the table", len(all), lines)
	}
	if err := m.Unmount(t.Context(), target); err != nil {
		t.Error(err)
	}
}
