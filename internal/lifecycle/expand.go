package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// expandTable does both halves of an expansion: Kubernetes calls nothing else.
func expandTable() Table {
	return Table{
		Name: string(Expand), About: "Both halves of an expansion, since Kubernetes makes no other call. Without its controller service a driver may return OK, with the size or without, though the volume has not grown: the filesystem is asked.",
		rules: []Rule{
			refuseFailedRule(),
			{
				Name: "not-writable", When: "the volume is not mounted for writing at the directory", Then: "refuse",
				applies: not(targetWritable), step: refuse(errNotWritable),
			},
			{
				Name: "expanded", When: "the volume has the size already, from the expandfs of another pod", Then: "done",
				applies: wasExpanded, step: take(Done),
			},
			driverAwayRule(),
			{
				Name: "size-unknown", When: "no controller service confirms the size, and the filesystem cannot be asked for it, after NodeExpandVolume if the driver has that", Then: "refuse",
				applies: all(not(driverHas(canControllerExpand)), either(not(driverHas(canNodeExpand)), tookForTarget(NodeExpand)), objects(TheSize)),
				step:    refuse(func(s *situation) error { return errSizeUnknown(s, s.seen(TheSize).Err) }),
			},
			{
				Name: "nominal", When: "the driver expands nothing, and the filesystem has the size, or no block device, as NFS",
				Then:    "record the size: the capacity limits nothing there, and pods must be able to start",
				applies: all(not(driverExpands), either(sizeProven, not(sizeHasDevice))),
				step: func(s *situation) Step {
					step := Step{Kind: NoteExpanded, Dir: s.dir, Filesystem: s.seen(TheSize).Filesystem}
					step.Nominal = !s.seen(TheSize).proves(s.op.Size)
					return step
				},
			},
			{
				Name: "controller-expand", When: "the controller service of the driver is reachable and has EXPAND_VOLUME", Then: "ControllerExpandVolume",
				applies: all(driverHas(canControllerExpand), not(tookForVolume(ControllerExpand))), step: takeForVolume(ControllerExpand),
			},
			{
				Name: "node-expand", When: "the node service has EXPAND_VOLUME, and ControllerExpandVolume was not possible, or its answer asked for node expansion", Then: "NodeExpandVolume",
				applies: all(driverHas(canNodeExpand), not(tookForTarget(NodeExpand)), either(not(driverHas(canControllerExpand)), nodeExpansionRequired)),
				step:    take(NodeExpand),
			},
			{
				Name: "unproven", When: "the filesystem does not have the size, and no controller service confirms it, or its answer asked for node expansion and the node service lacks that",
				Then:    "refuse: a driver that did nothing answers OK as well",
				applies: all(not(sizeConfirmed), not(sizeProven)), step: refuse(errNotExpanded),
			},
			{Name: "note-expanded", When: "the volume has the size", Then: "record the size", step: take(NoteExpanded)},
		},
	}
}

func targetWritable(s *situation) answer { return is(s.target() != nil && !s.target().ReadOnly) }

func wasExpanded(s *situation) answer {
	return is(s.record.Expand == volstate.Done && s.record.ExpandSize >= s.op.Size)
}

func nodeExpansionRequired(s *situation) answer { return is(s.op.NodeExpansionRequired) }

func driverExpands(s *situation) answer {
	return either(driverHas(canControllerExpand), driverHas(canNodeExpand))(s)
}

func sizeHasDevice(s *situation) answer {
	return sees(TheSize, func(_ *situation, seen Seen) bool { return seen.Device != 0 })(s)
}

// sizeConfirmed holds if the driver's answers need no proof: its controller has expanded
// the volume, and a node service the filesystem, if there is one to expand.
func sizeConfirmed(s *situation) answer {
	return all(driverHas(canControllerExpand), either(
		driverHas(canNodeExpand), not(nodeExpansionRequired), all(not(objects(TheSize)), not(sizeHasDevice)),
	))(s)
}

// sizeProven holds if the filesystem at the target has the size that is wanted. A
// driver without its controller expands the filesystem at most, and some say OK where the
// volume has not grown, or echo the size that they were asked for (ceph-csi rbd answers {}
// after resize2fs has found nothing to do). The size of the device proves nothing: pods
// use the filesystem.
func sizeProven(s *situation) answer {
	return sees(TheSize, func(s *situation, seen Seen) bool { return seen.proves(s.op.Size) })(s)
}

// header is what encryption may take of a device (cryptsetup, LUKS2: 16 MiB), and more
// than resize2fs leaves unused at its end, a group too small for its inode tables. Of a
// small device it is a headerPart.
const header, headerPart = 32 << 20, 32

func (seen Seen) proves(size int64) bool {
	return seen.Filesystem >= size || (seen.suffices(seen.Device, size) && seen.suffices(seen.Filesystem, size))
}

// suffices reports whether has is what is wanted of a device, or of a filesystem on one.
func (seen Seen) suffices(has, size int64) bool {
	return seen.Device != 0 && has >= size-min(header, size/headerPart)
}
