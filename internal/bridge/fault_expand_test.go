package bridge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const gib = 1 << 30

// TestExpandProof: without its controller a driver grows no volume, and says OK to
// NodeExpandVolume all the same (ceph-csi rbd). The claim got a size that the
// filesystem has not. The size of the device was taken for a proof, though a pod can use
// only the filesystem (N6).
func TestExpandProof(t *testing.T) {
	for _, c := range []struct {
		what          string
		bytes, device int64
		grown         bool
	}{
		{"nothing has grown", gib - gib/20, gib, false},
		{"as large as it was asked for", 2 * gib, 2 * gib, true},
		{"several devices", 2 * gib, gib, true}, // btrfs; the mount table names one
		{"the device has grown, and the filesystem has not", gib, 2 * gib, false},
		{"little was asked for, and the filesystem has not grown", 2*gib - gib/20, 2 * gib, false},
		{"encrypted", 2*gib - 16<<20, 2*gib - 16<<20, true},
		{"little was asked for, and the device has not grown", 2*gib - gib/10, 2*gib - gib/10, false},
		{"on a server, with a quota", 2 * gib, 0, true},
		{"on a server, without", gib, 0, false},
		{"on a server, and little was asked for", 2*gib - gib/20, 0, false},
		{"not known", 0, 0, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := newNode(t)
			n.driver.features.ControllerExpand = false
			dir := n.podDir("p1")
			n.succeed("mount", dir, options)
			n.mounts.bytes, n.mounts.device = c.bytes, c.device
			args := []string{"expandfs", options, "", dir, "2147483648", "1073741824"}
			s := n.call(args...)
			if c.grown != (s.Status == flex.StatusSuccess) {
				t.Errorf("%+v", s)
			}
			if !c.grown && (s.Code != flex.CodeFailedPrecondition || (!strings.Contains(s.Message, "controllerEndpoint") && !strings.Contains(s.Message, "resize2fs"))) {
				t.Errorf("it does not say what to do: %+v", s)
			}
			if done := n.record().Expand == volstate.Done; done != c.grown {
				t.Errorf("the record says that it is done: %t", done)
			}
			n.mounts.bytes = 2 * gib // it was grown elsewhere
			n.succeed(args...)
			n.succeed("unmount", dir)
			n.empty()
		})
	}
}

// TestExpandUnknown: a filesystem that does not answer has not grown.
func TestExpandUnknown(t *testing.T) {
	for _, nodeExpand := range []bool{true, false} {
		n := newNode(t)
		n.driver.features.ControllerExpand, n.driver.features.NodeExpand = false, nodeExpand
		n.succeed("mount", n.podDir("p1"), options)
		n.mounts.fail["Size"] = errors.New("no answer")
		if s := n.call("expandfs", options, "", n.podDir("p1"), "2000", "1000"); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable {
			t.Errorf("%+v", s)
		}
	}
}

// TestExpandBoth: what the controller has done needs no proof.
func TestExpandBoth(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.mounts.fail["Size"] = errors.New("asked")
	n.succeed("expandfs", options, "", n.podDir("p1"), "2000", "1000")
}

// TestExpandNothing: a claim that was grown kept its pods from starting, for drivers
// that expand nothing: the kubelet calls expandfs before each of them.
func TestExpandNothing(t *testing.T) {
	begin := func(t *testing.T, bytes, device int64) (n *node, notices *[]csivol.Event, args []string) {
		n, notices = newNode(t), new([]csivol.Event)
		n.bridge.Notify = func(notice csivol.Event) { *notices = append(*notices, notice) }
		n.driver.features.ControllerExpand, n.driver.features.NodeExpand = false, false
		n.succeed("mount", n.podDir("p1"), options)
		n.mounts.bytes, n.mounts.device = bytes, device
		n.driver.called()
		return n, notices, []string{"expandfs", options, "", n.podDir("p1"), "10737418240", "1073741824"}
	}
	t.Run("on a server", func(t *testing.T) { // NFS, SMB, FUSE
		n, notices, args := begin(t, 1000, 0)
		n.succeed(args...)
		n.succeed(args...)
		n.expect("a driver that expands nothing", "")
		if len(*notices) != 1 || (*notices)[0].PersistentVolume != "pv1" || !strings.Contains((*notices)[0].Message, "1000 bytes") {
			t.Errorf("people are told: %+v", *notices)
		}
	})
	t.Run("large enough", func(t *testing.T) {
		n, notices, args := begin(t, 50<<30, 0)
		n.succeed(args...)
		if len(*notices) > 0 {
			t.Errorf("people are told: %+v", *notices)
		}
	})
	const old, size = 1 << 30, 10 << 30
	t.Run("a device that was grown", func(t *testing.T) {
		n, notices, args := begin(t, size, size)
		n.succeed(args...)
		if len(*notices) > 0 {
			t.Errorf("people are told: %+v", *notices)
		}
	})
	t.Run("a device that was grown without its filesystem", func(t *testing.T) { // N6
		n, _, args := begin(t, old, size)
		if s := n.call(args...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "resize2fs") {
			t.Errorf("%+v", s)
		}
		if n.record().Expand == volstate.Done {
			t.Error("the record says that it is done")
		}
	})
	t.Run("a device", func(t *testing.T) {
		n, _, args := begin(t, old, old)
		s := n.call(args...)
		if s.Status != flex.StatusFailure || !strings.Contains(s.Message, "spec.capacity.storage of PersistentVolume pv1 back to 1073741824") {
			t.Errorf("%+v", s)
		}
		if n.record().Expand == volstate.Done {
			t.Error("the record says that it is done")
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	})
}

// TestExpandHalf: the controller grows the volume and wants the node to grow the
// filesystem, and the node service cannot. Success claimed a size that no pod could use
// (N6).
func TestExpandHalf(t *testing.T) {
	n := newNode(t)
	n.driver.features.NodeExpand = false
	n.succeed("mount", n.podDir("p1"), options)
	n.mounts.bytes, n.mounts.device = gib, 2*gib
	args := []string{"expandfs", options, "", n.podDir("p1"), "2147483648", "1073741824"}
	if s := n.call(args...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "resize2fs") {
		t.Errorf("%+v", s)
	}
	n.mounts.bytes = 2 * gib // an operator has grown it
	n.succeed(args...)
}
