package lifecycle

import (
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// errUnseen and errUnseenAttach end what the kubelet, which has been told that its call
// failed, does not come back for yet.
var (
	errUnseen       = flex.Errorf(flex.CodeAborted, "the caller of mount had left; the next one completes it")
	errUnseenAttach = flex.Errorf(flex.CodeAborted, "the caller of attach had left; the next one completes it")
)

func errUnreachable(dir, kubeletDir string, err error) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "nothing can be mounted at %s: %w; flex2csi was started for the kubelet's directory %s (--kubelet-dir)", dir, err, kubeletDir)
}

func errStageDead(r *volstate.Record, pods []string) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s: what its driver staged on this node is dead, most likely since the driver was restarted, and pods still hold it; delete these pods, and it is staged again: %s", r.Key(), strings.Join(pods, ", "))
}

func errSilent(r *volstate.Record, err error) error {
	return flex.Errorf(flex.CodeUnavailable, "volume %s is mounted on this node already, and does not answer: %w; it is left as it is, and mount is tried again", r.Key(), err)
}

func errPodGone(dir string) error {
	return flex.Errorf(flex.CodeNotFound, "the pod's volume directory %s no longer exists: the pod was deleted", filepath.Dir(dir))
}

func errBeingDetached(r *volstate.Record) error {
	return flex.Errorf(flex.CodeUnavailable, "the control plane deletes VolumeAttachment %s of volume %s now or soon, since the kubelet's CSI plugin has released the volume; the next call attaches it again; if that goes on for minutes after a rollback, delete the pod", r.Object, r.Key())
}

func errPodLives(dir string, f csivol.PVState) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s %s, and pod %s is still running with this mount: it is unmounted when the pod ends", filepath.Base(dir), f.Replaced, f.Pod)
}

func errOtherStage(r *volstate.Record) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and the kubelet's CSI plugin uses it, too; it is unstaged when the pods with its CSI PersistentVolume are gone from this node", r.Key(), r.StagingPath)
}

func errUnclear(r *volstate.Record, o *Observed) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and it is not clear whether the kubelet's CSI plugin has it there, too (its vol_data.json is next to it, or a pod is about to have it): unmountdevice succeeds when the plugin has it for a pod or has unstaged it, or when flex2csi has, %v after this began", r.Key(), r.StagingPath, o.Grace)
}

func errOtherDevice(r *volstate.Record, want *csivol.Volume) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolumes %s and %s are the same volume %s, and this node has it as %s: with attach: true one of them can be on a node; delete the pods of %s on this node first", want.Name, r.Name, r.Key(), r.Name, r.Name)
}

func errDisagree(r *volstate.Record, differs string) error {
	return flex.Errorf(flex.CodeAlreadyExists, "volume %s is in use on this node with %s (as volume %s): all its users must agree", r.Key(), differs, r.Name)
}

func errNoRepair(r *volstate.Record, err error) error {
	return flex.Errorf(flex.CodeOf(err), "mounts of volume %s cannot be replaced, delete the pods: %w", r.Key(), err)
}

func errSizeUnknown(r *volstate.Record, err error) error {
	return flex.Errorf(flex.CodeUnavailable, "whether volume %s has been expanded is not known: %w", r.Key(), err)
}

// errNotExpanded says what the driver did, and what an operator can do.
func errNotExpanded(r *volstate.Record, w Wanted, seen Seen, did string) error {
	if seen.Err != nil {
		return errSizeUnknown(r, seen.Err)
	}
	next := "set controllerEndpoint in the configuration if the driver has a controller, or grow the volume in its storage"
	if seen.enough(seen.Device, w.Size) {
		next = "grow the filesystem on the node (resize2fs, xfs_growfs)"
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "expand volume %s: driver %s %s, and the filesystem has %d bytes on a device of %d, not %d; %s, and the kubelet tries again; or set spec.capacity.storage of PersistentVolume %s back to %d", r.Key(), r.FlexDriver, did, seen.Filesystem, seen.Device, w.Size, next, r.Name, w.OldSize)
}
