package migrate

import (
	"context"
	"errors"
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// mappingChecks are about what the volume becomes.
func mappingChecks() []check {
	return []check{
		{"mapping", "that the mapping makes a volume of it, and the same one where a pod uses it read-only", (*subject).isFlex, (*subject).checkMapping},
		{"access-mode", "that the CSI driver is told the same access mode, that the volume can be attached with it, and that one node has it if only one can", (*subject).rendered, (*subject).checkAccessMode},
		{"handle", "that no other PersistentVolume is this volume, or would become it; others of the same share", (*subject).rendered, (*subject).checkHandle},
	}
}

func (s *subject) checkMapping(_ context.Context, f *findings) error {
	err := s.unknown["mapping"]
	switch unsupported := objects.Unsupported(s.v.FlexDriver, false); {
	case errors.Is(err, errUnmapped) && unsupported != "":
		f.fails("see docs/limits.md", "%s", unsupported)
		return nil
	case errors.Is(err, errUnmapped):
		f.fails("write a mapping for it (docs/mapping.md), or take one that there is (flex2csi preset list)", "%v %s", err, s.v.FlexDriver)
		return nil
	case err != nil:
		f.fails("flex2csi map shows more", "%v", err)
		return nil
	}
	f.ok("it becomes %s", s.r.mapped.Key())
	if s.r.otherReadOnly {
		f.decide("see whether a pod uses it read-only; if all do, write the manifest by hand",
			"the mapping makes another volume of it where a pod uses the claim read-only, and a PersistentVolume is one for all")
	}
	return nil
}

// checkAccessMode: pods on several nodes can have a FlexVolume, whatever its modes are.
func (s *subject) checkAccessMode(_ context.Context, f *findings) error {
	f.all = s.r.modesFound.all
	if nodes := s.v.nodes(); len(nodes) > 1 && s.oneNode() {
		f.decide("stop the pods on all nodes but one, or make the volume ReadWriteMany if the CSI driver can; after this only one node can have it",
			"%d nodes have pods of the claim (%s), and a CSI volume with %s is attached to one: pods on the others do not start again", len(nodes), list(nodes), s.modesAfter()[0])
	}
	return nil
}

// oneNode reports whether the control plane attaches the replacement to one node at a time
// (pkg/volume/util/util.go, IsMultiAttachAllowed, Kubernetes v1.37.1).
func (s *subject) oneNode() bool {
	modes := s.modesAfter()
	return s.attaches() && len(modes) > 0 && !slices.Contains(modes, csivol.ReadWriteMany) && !slices.Contains(modes, csivol.ReadOnlyMany)
}

// checkHandle: two PersistentVolumes of one volume are two that unstage it.
func (s *subject) checkHandle(ctx context.Context, f *findings) error {
	key := s.r.mapped.Key()
	share := shareOf(s.v.Name, key, s.r.mapped.Context)
	all, err := s.w.handlesLike(ctx, s.drivers, key, share)
	if err != nil {
		return err
	}
	same, become := all.are[key], all.become[key]
	other := slices.IndexFunc(become, func(name string) bool { return name != s.v.Name })
	switch {
	case len(same) > 0:
		f.fails("delete that one, if it is left from an attempt by hand", "PersistentVolume %s is the same volume already (%s)", same[0], key)
	case other >= 0:
		f.fails("delete one of the two, or make volume.handle of the configuration tell them apart", "PersistentVolume %s would become the same volume (%s)", become[other], key)
	default:
		f.ok("no other of %d PersistentVolumes is or would be %s", all.total-1, key)
	}
	if others := slices.DeleteFunc(slices.Clone(all.shares[share]), func(name string) bool { return name == s.v.Name }); len(others) > 0 { // kubernetes-csi/csi-driver-smb#353
		f.note("use one PersistentVolume of it on a node",
			"PersistentVolume %s has the same volume attributes, and its handle differs by its name: where a node has both, the CSI driver may fail to unstage one while the other is mounted", list(others))
	}
	return nil
}
