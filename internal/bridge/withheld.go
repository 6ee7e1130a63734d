package bridge

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Records that were read from their files lack values that look secret
// (volstate.Record.Incomplete). Calls with options bring them back: describe
// and expand take them from there. What has no call does without, or fails.

// attachAgain asks once more for the publish context of a volume that is
// attached. An error changes nothing: others may be using the volume.
func (b *Bridge) attachAgain(s *setup) error {
	r := s.v.record
	if r.Object != "" {
		return b.attachInCluster(s, r.Attachment)
	}
	published, err := b.controllerPublish(s)
	if err != nil {
		return remember(r, err)
	}
	r.PublishContext = published
	return nil
}

// requireKnown is an error if something of what the driver was told is not known.
func (s *setup) requireKnown(dirs ...string) error {
	r := s.v.record
	for _, dir := range dirs {
		needed := s.policy.PodInfo || len(s.policy.Tokens) > 0
		if needed && r.Targets[dir].Pod.Name == "" { // taken up from the node: lost.go
			return flex.Errorf(flex.CodeFailedPrecondition, "which pod has %s is not known", dir)
		}
	}
	if !r.Incomplete() {
		return nil
	}
	return errIncomplete(r)
}

func errIncomplete(r *volstate.Record) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "the volume context or the mount flags of volume %s hold values that look secret; these are not kept on the disk, and flex2csi knows them again when the kubelet mounts the volume for another pod of this node", r.Key())
}
