package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// expandRules do both halves of an expansion: Kubernetes calls nothing else.
func expandRules() []Rule {
	return []Rule{
		refuseFailed(),
		{"not-writable", "the volume is not mounted for writing at the directory", "refuse", func(c *plan) *Step {
			if t := c.target(); t != nil && !t.ReadOnly {
				return nil
			}
			return refuse(flex.Errorf(flex.CodeFailedPrecondition, "volume %s is not mounted for writing at %s; a read-only mount is not expanded", c.r.Key(), c.dir))
		}},
		{"expanded", "the volume has the size already, from the expandfs of another pod", "done", func(c *plan) *Step {
			if c.r.Expand != volstate.Done || c.r.ExpandSize < c.op.Size {
				return nil
			}
			return c.step(Done)
		}},
		driverAwayRule(),
		{"size-unknown", "no controller service confirms the size, and the filesystem cannot be asked for it, after NodeExpandVolume if the driver has that", "refuse", func(c *plan) *Step {
			if c.driver().Features.ControllerExpand || (c.driver().Features.NodeExpand && !c.tookForTarget(NodeExpand)) {
				return nil
			}
			if seen := c.see(TheSize, c.dir); seen.Err != nil {
				return refuse(errSizeUnknown(c.r, seen.Err))
			}
			return nil
		}},
		{"nominal", "the driver expands nothing, and the filesystem has the size, or no block device, as NFS", "record the size: the capacity limits nothing there, and pods must be able to start", func(c *plan) *Step {
			if c.expandsAnything() || (!c.proven() && c.see(TheSize, c.dir).Device != 0) {
				return nil
			}
			return c.step(NoteExpanded)
		}},
		{"controller-expand", "the controller service of the driver is reachable and has EXPAND_VOLUME", "ControllerExpandVolume", func(c *plan) *Step {
			if !c.driver().Features.ControllerExpand || c.tookForVolume(ControllerExpand) {
				return nil
			}
			return &Step{Kind: ControllerExpand}
		}},
		{"node-expand", "the node service has EXPAND_VOLUME, and ControllerExpandVolume was not possible, or its answer asked for node expansion", "NodeExpandVolume", func(c *plan) *Step {
			f := c.driver().Features
			if !f.NodeExpand || c.tookForTarget(NodeExpand) || (f.ControllerExpand && !c.op.NodeExpansionRequired) {
				return nil
			}
			return c.step(NodeExpand)
		}},
		{"unproven", "the filesystem does not have the size, and no controller service confirms it, or its answer asked for node expansion and the node service lacks that", "refuse: a driver that did nothing answers OK as well", func(c *plan) *Step {
			if c.confirmed() || c.proven() {
				return nil
			}
			did := "reported success"
			if !c.expandsAnything() {
				did = "expands neither volumes nor filesystems from here"
			}
			return refuse(errNotExpanded(c.r, c.op.Wanted, c.see(TheSize, c.dir), did))
		}},
		{"note-expanded", "the volume has the size", "record the size", func(c *plan) *Step { return c.step(NoteExpanded) }},
	}
}

func (c *plan) expandsAnything() bool {
	f := c.driver().Features
	return f.ControllerExpand || f.NodeExpand
}

// confirmed reports whether the driver's answers need no proof: its controller has expanded
// the volume, and a node service the filesystem, if there is one to expand.
func (c *plan) confirmed() bool {
	f := c.driver().Features
	if !f.ControllerExpand || f.NodeExpand || !c.op.NodeExpansionRequired {
		return f.ControllerExpand
	}
	seen := c.see(TheSize, c.dir)
	return seen.Err == nil && seen.Device == 0
}

// header is what encryption may take of a device (cryptsetup, LUKS2: 16 MiB), and more
// than resize2fs leaves unused at its end, a group too small for its inode tables. Of a
// small device it is a headerPart.
const header, headerPart = 32 << 20, 32

// proven reports whether the filesystem at the target has the size that is wanted. A
// driver without its controller expands the filesystem at most, and some say OK where the
// volume has not grown, or echo the size that they were asked for (ceph-csi rbd answers {}
// after resize2fs has found nothing to do). The size of the device proves nothing: pods
// use the filesystem.
func (c *plan) proven() bool {
	seen, want := c.see(TheSize, c.dir), c.op.Size
	return seen.Filesystem >= want || (seen.enough(seen.Device, want) && seen.enough(seen.Filesystem, want))
}

// enough reports whether size is what is wanted of a device, or of a filesystem on one.
func (s Seen) enough(size, want int64) bool {
	return s.Device != 0 && size >= want-min(header, want/headerPart)
}

// Nominal reports whether an expansion changes nothing but what the claim says, and
// what the filesystem has.
func Nominal(op *Operation, o *Observed) (size int64, nominal bool) {
	c := &plan{op: op, o: o, dir: op.Dir}
	return c.see(TheSize, op.Dir).Filesystem, !c.expandsAnything() && !c.proven()
}
