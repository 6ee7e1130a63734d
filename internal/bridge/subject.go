package bridge

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// subject returns what a record tells of a volume and, with one of its directories, of the
// pod. Operations for a node have its name in place of a directory.
func subject(r *volstate.Record, dir string) volumelog.Subject {
	s := volumelog.Subject{CSIDriver: r.Driver, VolumeHandle: r.Handle, PersistentVolume: r.Name}
	if t := r.Targets[dir]; t != nil {
		s = s.And(volumelog.OfDir(dir)).And(volumelog.Subject{Namespace: t.Pod.Namespace, Pod: t.Pod.Name, PodUID: t.Pod.UID})
	}
	return s
}

// subject returns that of the volume's saved record, if there is one.
func (v *volume) subject(dir string) volumelog.Subject {
	if r := v.saved.Load(); r != nil {
		return subject(r, dir)
	}
	return volumelog.Subject{CSIDriver: v.key.Driver, VolumeHandle: v.key.Handle}
}

// concern has the context and the log of the operation name the pod of a target, which may be
// another than that of the call, until the function that it returns is called.
func (x *execution) concern(dir string) (over func()) {
	v, ctx, log := x.v, x.v.ctx, x.v.log
	was, s := volumelog.From(ctx), subject(v.record, dir)
	if v.record.Targets[dir] == nil || was.And(s) == was {
		return func() {}
	}
	v.ctx = volumelog.With(ctx, s)
	v.log = volumelog.Logger(v.ctx, x.b.log())
	return func() { v.ctx, v.log = ctx, log }
}
