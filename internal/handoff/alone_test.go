package handoff_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mounts are what is mounted below a directory.
func mounts(t *testing.T, below string) []string {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(below))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, i := range infos {
		points = append(points, i.Mountpoint)
	}
	return points
}

// TestUnmountAlone: a pod can go while there is no daemon, and the daemon
// learns of it.
func TestUnmountAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir, private := n.published("1")
	other, _ := n.published("2")
	n.wantSuccess("unmount", dir)
	for _, point := range mounts(t, n.kubelet.Root) {
		if strings.Contains(point, "/pods/1/") {
			t.Errorf("still mounted: %s", point)
		}
	}
	if len(mounts(t, other)) != 1 {
		t.Error("the other pod has lost its volume")
	}
	if _, err := os.Stat(filepath.Join(n.kubelet.Root, "pods/1/flex2csi")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubelet would delete what is below %s: %v", private, err)
	}
	found, broken := statedir.ListPendingUnmounts(n.stateDir)
	if len(found) != 1 || len(broken) > 0 || found[0].Dir != dir || found[0].Command != flex.CommandUnmount || found[0].Driver != "example.com/disk" || found[0].Time.IsZero() {
		t.Errorf("pending unmounts: %+v, %v", found, broken)
	}

	n.wantSuccess("unmount", dir) // the kubelet was restarted, and asks again
	n.wantSuccess("unmount", other)
	if left := mounts(t, n.kubelet.Root); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if found, _ := statedir.ListPendingUnmounts(n.stateDir); len(found) != 2 {
		t.Errorf("pending unmounts: %+v", found)
	}
}

// TestUnmountAloneHalfDone: an unmount that was killed is completed.
func TestUnmountAloneHalfDone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir, private := n.published("1")
	// Killed after the pending unmount was written, and after the first unmount.
	if err := statedir.WritePendingUnmount(n.stateDir, statedir.PendingUnmount{Driver: "example.com/disk", Command: flex.CommandUnmount, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := unmount(dir); err != nil {
		t.Fatal(err)
	}
	n.wantSuccess("unmount", dir)
	if left := mounts(t, n.kubelet.Root); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if _, err := os.Stat(private); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", private, err)
	}
}

// TestNoPendingUnmount: without a pending unmount nothing is unmounted.
func TestNoPendingUnmount(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir, private := n.published("1")
	if err := os.WriteFile(n.stateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	status := n.wantFailure(flex.CodeUnavailable, "unmount", dir)
	if !strings.Contains(status.Message, n.stateDir) {
		t.Error(status.Message)
	}
	if len(mounts(t, dir)) != 1 || len(mounts(t, private)) != 1 {
		t.Error("unmounted without a pending unmount")
	}
	for _, point := range []string{dir, private} {
		if err := unmount(point); err != nil {
			t.Error(err)
		}
	}
}

// TestBusy: what a process still uses stays, and the next call goes on.
func TestBusy(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	dir, _ := n.published("1")
	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	n.wantFailure(flex.CodeAborted, "unmount", dir)
	if len(mounts(t, dir)) != 1 {
		t.Error("a mount in use was taken away")
	}
	file.Close()
	n.wantSuccess("unmount", dir)
	if left := mounts(t, n.kubelet.Root); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// TestDaemonSaysNo: a daemon that is there has the last word, whatever its
// class of error.
func TestDaemonSaysNo(t *testing.T) {
	n := newNode(t)
	dir, _ := n.published("1")
	n.daemon(flex.Failure(flex.Errorf(flex.CodeUnavailable, "the CSI driver is not there")))
	n.wantFailure(flex.CodeUnavailable, "unmount", dir)
	if len(mounts(t, dir)) != 1 {
		t.Error("unmounted behind the back of the daemon")
	}
	if found, _ := statedir.ListPendingUnmounts(n.stateDir); len(found) > 0 {
		t.Errorf("pending unmounts: %+v", found)
	}
	for _, point := range mounts(t, n.kubelet.Root) {
		if err := unmount(point); err != nil {
			t.Error(err)
		}
	}
}

// TestOtherDirectory: without a kubelet's path there is nothing to go by.
func TestOtherDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.wantFailure(flex.CodeInvalidArgument, "unmount", "/tmp/x")
	if found, _ := statedir.ListPendingUnmounts(n.stateDir); len(found) > 0 {
		t.Errorf("pending unmounts: %+v", found)
	}
}
