package bridge

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const sweepCommand flex.Command = "sweep"

// Sweep looks for attachments that this node has made and that no record knows
// of, since the records were lost: nobody else would ever delete them. What is
// still in use keeps its attachment.
func (b *Bridge) Sweep(ctx context.Context) error {
	if b.Attachments == nil {
		return nil
	}
	ours, err := b.Attachments(ctx)
	if err != nil {
		return err
	}
	known := map[csivol.Key]bool{}
	for _, r := range b.Records() {
		known[r.Key()] = r.Object != ""
	}
	for _, a := range ours {
		if a.Node == b.NodeName && !known[a.Key()] && !b.busy(a.Key()) {
			r := &volstate.Record{Driver: a.Driver, Handle: a.Handle}
			b.doLater(r, operation{command: sweepCommand}, "see whether its attachment is needed", func(v *volume) error { return b.sweep(v, a) })
		}
	}
	return nil
}

// sweep looks again, now that nothing else works on the volume.
func (b *Bridge) sweep(v *volume, a *csivol.Attachment) error {
	r := v.record
	d := b.Drivers[a.FlexDriver]
	switch {
	case r.Attach != volstate.None:
		return nil // by it, or else it goes when that is over
	case r.Idle() && b.csiPods(a.Key()):
		return nil // since a migration; the control plane detaches it when they are gone
	case d == nil || d.CSIDriver != a.Driver || d.Attacher == nil:
		v.log.Warn("an attachment of this node is of a driver that the configuration no longer has, and stays", "driver", a.FlexDriver)
		return nil
	case !r.Idle(): // a version of the record that is not the last
		r.Attach, r.Attachment, r.Object = volstate.Doing, byNode, attachment.Name(a.Handle, a.Driver, b.NodeName)
		return nil
	case b.inUse(d, a):
		v.log.Warn("an attachment of this node is of a volume without a record, and stays while pods have it")
		return nil
	}
	v.log.Info("detaching what no record knows of")
	r.FlexDriver, r.Name = a.FlexDriver, a.Name
	r.Attach, r.Attachment, r.Object = volstate.Doing, byNode, attachment.Name(a.Handle, a.Driver, b.NodeName)
	return b.detachFrom(d, v, csivol.Secrets{})
}

// inUse reports whether this node shows anything of a volume. What cannot be
// looked at may be in use.
func (b *Bridge) inUse(d *FlexDriver, a *csivol.Attachment) bool {
	for _, path := range []string{b.stagingPath(d, a.Key()), b.kubeletStagingPath(a.Key())} {
		if mounts, err := b.stageMounts(path); err != nil || len(mounts) > 0 {
			return true
		}
	}
	name := a.Name
	if name == "" || d.Inline {
		name = "*"
	}
	for _, pattern := range []string{
		filepath.Join("volumes", strings.Replace(a.FlexDriver, "/", "~", 1), name),
		filepath.Join("flex2csi/volumes/kubernetes.io~csi", name),
	} {
		found, err := filepath.Glob(filepath.Join(b.KubeletDir, "pods/*", pattern))
		if err != nil || len(found) > 0 {
			return true
		}
	}
	return false
}
