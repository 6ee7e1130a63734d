package bridge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// describe fills in what a volume is, or compares: two PersistentVolumes with
// one handle must want the same of it, since it is staged once.
func (b *Bridge) describe(d *FlexDriver, v *volume, want *csivol.Volume) error {
	r := v.record
	r.Endpoints = d.Endpoints
	if r.Idle() || r.Stage == volstate.None && len(r.Targets) == 0 && (r.Attach == volstate.None || detachPending(r)) {
		fill(r, want)
		b.adopt(r)
		return nil
	}
	r.Complete(want.Context, want.MountFlags)
	r.Inline = r.Inline || want.Inline
	differs := difference(r, want)
	switch {
	case differs == "":
	case onlyAsked(r, want):
		v.log.Info("what is asked for has changed, and is attached anew", "differs", differs)
		fill(r, want)
		r.Attach = volstate.Undoing
	case sameVolume(r, want) && !r.Incomplete():
		v.log.Warn("what is asked for has changed since the volume was set up on this node; it goes on as it was begun until its last pod here is gone", "persistentVolume", r.Name, "begunWith", differs)
	default:
		return flex.Errorf(flex.CodeAlreadyExists, "volume %s is in use on this node with %s (as volume %s): all its users must agree", v.key, differs, r.Name)
	}
	return nil
}

// difference says what a record has otherwise than is asked for; empty: nothing.
func difference(r *volstate.Record, want *csivol.Volume) string {
	switch {
	case r.FlexDriver != want.FlexDriver:
		return fmt.Sprintf("the driver %s, not %s", r.FlexDriver, want.FlexDriver)
	case r.FSType != want.FSType:
		return fmt.Sprintf("fsType %q, not %q", r.FSType, want.FSType)
	case !slices.Equal(r.MountFlags, want.MountFlags):
		return "other mount flags"
	case differentModes(r, want):
		return fmt.Sprintf("access mode %s, not %s", r.AccessMode, want.AccessMode)
	case !maps.Equal(r.Context, want.Context):
		return "another volume context"
	}
	return ""
}

// sameVolume reports whether a call is for the PersistentVolume of a record. Then
// they cannot disagree: it is the configuration that has changed. Inline volumes of
// one name may be those of two pods.
func sameVolume(r *volstate.Record, want *csivol.Volume) bool {
	return r.Name == want.Name && r.FlexDriver == want.FlexDriver && !r.Inline && !want.Inline
}

// startOver undoes what was begun for a PersistentVolume of which something else is
// asked by now, as long as no pod has it: what was wrong may never come to an end.
func (b *Bridge) startOver(d *FlexDriver, v *volume, want *csivol.Volume) error {
	r := v.record
	r.Complete(want.Context, want.MountFlags)
	differs := difference(r, want)
	if r.Idle() || differs == "" || !sameVolume(r, want) || onlyAsked(r, want) || b.visible(r) {
		return nil
	}
	if over, err := b.takenOver(v); err != nil || over {
		return err
	}
	v.log.Info("what is asked for has changed, and no pod has the volume: what was begun is undone first", "begunWith", differs)
	for dir, t := range r.Targets {
		if err := b.unpublish(d, v, t, dir); err != nil {
			return err
		}
	}
	if err := b.unstage(d, v); err != nil {
		return err
	}
	if r.Attachment != byControlPlane {
		if err := b.detachFrom(d, v, want.Secrets); err != nil {
			return err
		}
	}
	fill(r, want)
	return nil
}

// visible reports whether a pod has the volume, or may have it.
func (b *Bridge) visible(r *volstate.Record) bool {
	for dir, t := range r.Targets {
		mounted, err := b.Mounts.Mounted(dir)
		if t.Bound || t.Publish == volstate.Done || mounted || err != nil {
			return true
		}
	}
	return false
}

func fill(r *volstate.Record, want *csivol.Volume) {
	r.FlexDriver, r.Name, r.Inline = want.FlexDriver, want.Name, want.Inline
	r.Context, r.FSType, r.MountFlags = want.Context, want.FSType, want.MountFlags
	r.AccessMode, r.AccessModes = want.AccessMode, want.AccessModes
}

// onlyAsked reports that an attachment was asked for and nothing has come of it,
// perhaps since it could not: then a configuration that was put right holds at
// once. Two PersistentVolumes may still not take turns at that.
func onlyAsked(r *volstate.Record, want *csivol.Volume) bool {
	asked := r.Object != "" && !r.Foreign && r.Attach != volstate.Done
	return asked && r.Name == want.Name && r.FlexDriver == want.FlexDriver && r.Stage == volstate.None && len(publishedPods(r)) == 0
}

// differentModes: what one PersistentVolume is said to have may change with the
// configuration, or when the API server can be asked again; what has been begun
// goes on as it was.
func differentModes(r *volstate.Record, want *csivol.Volume) bool {
	return r.Name != want.Name && r.AccessMode != "" && want.AccessMode != "" && r.AccessMode != want.AccessMode
}
