package bridge

import (
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Records that were read from their files lack values that look secret
// (volstate.Record.Incomplete). Calls with options bring them back: describe
// and expand take them from there. What has no call does without, or fails.

// attachAgain asks once more for the publish context of a volume that is
// attached. An error changes nothing: others may be using the volume.
func (b *Bridge) attachAgain(d *FlexDriver, v *volume, want *csivol.Volume) error {
	published, err := b.controllerPublish(d, v, want)
	if err != nil {
		return remember(v.record, err)
	}
	v.record.PublishContext = published
	return nil
}

// requireKnown is an error if something of what the driver was told is not known.
func requireKnown(d *FlexDriver, r *volstate.Record, dirs ...string) error {
	for _, dir := range dirs {
		if d.PodInfo && r.Targets[dir].Pod.Name == "" { // taken up from the node: lost.go
			return flex.Errorf(flex.CodeFailedPrecondition, "which pod has %s is not known", dir)
		}
	}
	if !r.Incomplete() {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "the volume context or the mount flags of volume %s hold values that look secret; these are not kept on the disk, and flex2csi knows them again when the kubelet mounts the volume for another pod of this node", r.Key())
}
