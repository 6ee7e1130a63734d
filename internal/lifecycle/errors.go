package lifecycle

import (
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// errUnseen and errUnseenAttach end what the kubelet, which has been told that its call
// failed, does not come back for yet.
var (
	errUnseen       = flex.Errorf(flex.CodeAborted, "the caller of mount had left; the next one completes it")
	errUnseenAttach = flex.Errorf(flex.CodeAborted, "the caller of attach had left; the next one completes it")
)

func errUnreachable(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "nothing can be mounted at %s: %w; flex2csi was started for the kubelet's directory %s (--kubelet-dir)", s.dir, s.seen(TheDir).Err, s.observed.KubeletDir)
}

func errStageDead(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s: what its driver staged on this node is dead, most likely since the driver was restarted, and pods still hold it; delete these pods, and it is staged again: %s", s.record.Key(), strings.Join(publishedPods(s.record), ", "))
}

func errSilent(what FactKind) func(*situation) error {
	return func(s *situation) error {
		return flex.Errorf(flex.CodeUnavailable, "volume %s is mounted on this node already, and does not answer: %w; it is left as it is, and mount is tried again", s.record.Key(), s.seen(what).Err)
	}
}

func errReadOnly(s *situation) error {
	is, wanted := s.target().ReadOnly, s.op.Volume.ReadOnly
	return flex.Errorf(flex.CodeAlreadyExists, "volume %s is mounted at %s with read-only=%t, not %t as asked; unmount it first", s.record.Key(), s.dir, is, wanted)
}

func errPodGone(s *situation) error {
	return flex.Errorf(flex.CodeNotFound, "the pod's volume directory %s no longer exists: the pod was deleted", filepath.Dir(s.dir))
}

func errBeingDetached(r *volstate.Record) error {
	return flex.Errorf(flex.CodeUnavailable, "the control plane deletes VolumeAttachment %s of volume %s now or soon, since the kubelet's CSI plugin has released the volume; the next call attaches it again; if that goes on for minutes after a rollback, delete the pod", r.Object, r.Key())
}

func errPodLives(s *situation) error {
	pv := s.seen(ThePVState).PVState
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s %s, and pod %s is still running with this mount: it is unmounted when the pod ends", filepath.Base(s.dir), pv.Replaced, pv.Pod)
}

func errOtherStage(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and the kubelet's CSI plugin uses it, too; it is unstaged when the pods with its CSI PersistentVolume are gone from this node", s.record.Key(), s.record.StagingPath)
}

func errUnclear(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and it is not clear whether the kubelet's CSI plugin has it there, too (its vol_data.json is next to it, or a pod is about to have it): unmountdevice succeeds when the plugin has it for a pod or has unstaged it, or when flex2csi has, %v after this began", s.record.Key(), s.record.StagingPath, s.observed.Grace)
}

func errOtherDevice(s *situation) error {
	r, want := s.record, s.op.Volume
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolumes %s and %s are the same volume %s, and this node has it as %s: with attach: true one of them can be on a node; delete the pods of %s on this node first", want.Name, r.Name, r.Key(), r.Name, r.Name)
}

func errDisagree(r *volstate.Record, differs string) error {
	return flex.Errorf(flex.CodeAlreadyExists, "volume %s is in use on this node with %s (as volume %s): all its users must agree", r.Key(), differs, r.Name)
}

func errNoRepair(s *situation) error {
	err := s.seen(TheCall).Err
	return flex.Errorf(flex.CodeOf(err), "mounts of volume %s cannot be replaced, delete the pods: %w", s.record.Key(), err)
}

func errSizeUnknown(s *situation, err error) error {
	return flex.Errorf(flex.CodeUnavailable, "whether volume %s has been expanded is not known: %w", s.record.Key(), err)
}

// errNotExpanded says what the driver did, and what an operator can do.
func errNotExpanded(s *situation) error {
	r, op, seen := s.record, s.op, s.seen(TheSize)
	if seen.Err != nil {
		return errSizeUnknown(s, seen.Err)
	}
	did := "reported success"
	if f := s.driverFacts().Features; !f.ControllerExpand && !f.NodeExpand {
		did = "expands neither volumes nor filesystems from here"
	}
	next := "set controllerEndpoint in the configuration if the driver has a controller, or grow the volume in its storage"
	if seen.suffices(seen.Device, op.Size) {
		next = "grow the filesystem on the node (resize2fs, xfs_growfs)"
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "expand volume %s: driver %s %s, and the filesystem has %d bytes on a device of %d, not %d; %s, and the kubelet tries again; or set spec.capacity.storage of PersistentVolume %s back to %d", r.Key(), r.FlexDriver, did, seen.Filesystem, seen.Device, op.Size, next, r.Name, op.OldSize)
}

func errNotWritable(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is not mounted for writing at %s; a read-only mount is not expanded", s.record.Key(), s.dir)
}

func errStillPublished(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still published for pods of this node, and is not unstaged", s.record.Key())
}

func errStillStaged(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still staged on this node, and is not detached", s.record.Key())
}

func errDeviceInUse(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still mounted for %d pods of this node; unmount comes before unmountdevice", s.record.Key(), len(s.record.Targets))
}

func errDetachInUse(s *situation) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still in use on node %s and is not detached; it will be when its last pod is gone", s.record.Key(), s.observed.Node)
}
