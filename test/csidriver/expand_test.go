package csidriver_test

import (
	"math"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func (w *world) expandDisk(n int64) (bool, error) {
	answer, err := w.ControllerExpandVolume(ctx(w.t), &csi.ControllerExpandVolumeRequest{VolumeId: "disk-1", CapacityRange: &csi.CapacityRange{RequiredBytes: n}})
	return answer.GetNodeExpansionRequired(), err
}

func (w *world) expandNode(path string, n int64) error {
	_, err := w.NodeExpandVolume(ctx(w.t), &csi.NodeExpandVolumeRequest{VolumeId: "disk-1", VolumePath: path, StagingTargetPath: w.staging("disk-1"), CapacityRange: &csi.CapacityRange{RequiredBytes: n}})
	return err
}

func TestExpandOnline(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			testenv.Need(t, fs)
			w := newWorld(t)
			w.create("disk-1", mib(320), nil)
			w.want(w.stage("disk-1", multi(fs)), codes.OK)
			w.want(w.publish("a", multi(fs), true), codes.OK)
			w.want(w.expandNode(w.target("b"), 0), codes.NotFound)
			w.want(w.expandNode(w.target("a"), mib(640)), codes.OutOfRange)
			required, err := w.expandDisk(mib(640))
			w.want(err, codes.OK)
			if !required {
				t.Error("the node need not expand")
			}
			err = w.expandNode(w.target("a"), mib(640))
			if fs == "ext4" && !mayResize(t) {
				// This process may not; then that is said, and the next stage does it.
				w.want(err, codes.FailedPrecondition)
				w.want(w.unpublish("disk-1", "a"), codes.OK)
				w.want(w.unstage("disk-1"), codes.OK)
				w.want(w.stage("disk-1", multi(fs)), codes.OK)
				w.want(w.publish("a", multi(fs), true), codes.OK)
				err = w.expandNode(w.target("a"), mib(640))
			}
			w.want(err, codes.OK)
			if got := size(t, w.target("a")); got < mib(500) {
				t.Errorf("the filesystem has %d bytes", got)
			}
			if required, err := w.expandDisk(mib(640)); err != nil || required {
				t.Errorf("expand again: node required %t, %v", required, err)
			}
			w.want(w.unpublish("disk-1", "a"), codes.OK)
			w.want(w.unstage("disk-1"), codes.OK)
		})
	}
}

func TestExpandOffline(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			testenv.Need(t, fs)
			w := newWorld(t, "--expansion", "offline")
			w.create("disk-1", mib(320), nil)
			w.want(w.stage("disk-1", multi(fs)), codes.OK)
			_, err := w.expandDisk(mib(640))
			w.want(err, codes.FailedPrecondition)
			w.want(w.unstage("disk-1"), codes.OK)
			_, err = w.expandDisk(mib(640))
			w.want(err, codes.OK)
			w.want(w.stage("disk-1", multi(fs)), codes.OK)
			if got := size(t, w.staging("disk-1")); got < mib(500) {
				t.Errorf("the filesystem has %d bytes", got)
			}
			w.want(w.expandNode(w.staging("disk-1"), mib(640)), codes.OK)
			w.want(w.unstage("disk-1"), codes.OK)
		})
	}
}

func TestExpandNever(t *testing.T) {
	w := newWorld(t, "--expansion", "none")
	w.create("disk-1", mib(64), nil)
	_, err := w.expandDisk(mib(128))
	w.want(err, codes.Unimplemented)
}

func TestCapacity(t *testing.T) {
	w := newWorld(t)
	create := func(name string, required, limit int64) (int64, codes.Code) {
		answer, err := w.CreateVolume(ctx(t), &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, VolumeCapabilities: []*csi.VolumeCapability{multi("")}})
		return answer.GetVolume().GetCapacityBytes(), status.Code(err)
	}
	for _, tt := range []struct {
		name            string
		required, limit int64
		want            int64
		code            codes.Code
	}{
		{"default", 0, 0, 1 << 30, codes.OK},
		{"limit", 0, mib(5) + 1, mib(5), codes.OK},
		{"rounded", mib(5) + 1, 0, mib(5) + 512, codes.OK},
		{"least", 1, 0, mib(1), codes.OK},
		{"tight", mib(5) + 1, mib(5) + 2, 0, codes.OutOfRange},
		{"contradiction", 2, 1, 0, codes.InvalidArgument},
		{"negative", -1, 0, 0, codes.InvalidArgument},
		{"rounded", mib(5), 0, mib(5) + 512, codes.OK}, // there already
		{"rounded", mib(5) + 1024, 0, 0, codes.AlreadyExists},
		{"huge", 1 << 62, 0, 0, codes.OutOfRange},
		{"endless", math.MaxInt64, 0, 0, codes.OutOfRange},
		{"a name/with *everything* ☃", mib(1), 0, mib(1), codes.OK},
	} {
		if got, code := create(tt.name, tt.required, tt.limit); got != tt.want || code != tt.code {
			t.Errorf("%s: %d bytes, %s; want %d, %s", tt.name, got, code, tt.want, tt.code)
		}
	}
}

func mayResize(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
