package migrate

import (
	"context"
)

// ownerChecks are about who else acts on the volume.
func ownerChecks() []check {
	return []check{
		{"owners", "GitOps tools, Helm and others who would put the old volume back, or try to", (*subject).rendered, (*subject).checkOwners},
		{"reclaim-policy", "whether something has to be decided about it", (*subject).rendered, (*subject).checkPolicy},
	}
}

// checkPolicy: what the old volume was deleted by is not what deletes the new.
func (s *subject) checkPolicy(_ context.Context, f *findings) error {
	o := s.v.Original
	switch o.ReclaimPolicy {
	case policyRetain:
		f.ok("Retain, and stays so")
	case policyDelete:
		if o.Provisioner == "" {
			f.decide("--restore-reclaim-policy to have Delete again, by which nothing is deleted, as before; else it is Retain",
				"Delete, which no provisioner does, since the volume has no annotation %s; the replacement has Retain", provisionedBy)
			break
		}
		if text := notDone(s.r.mapped); text != "" {
			f.decide("leave it at Retain, and delete what is stored by the means of the storage system", "Delete, which was done by %s; the replacement has Retain: %s", o.Provisioner, text)
			break
		}
		f.decide("--restore-reclaim-policy to have what is stored deleted with the claim by CSI driver "+s.v.CSIDriver+"; else it is kept",
			"Delete, which was done by %s; the replacement has Retain", o.Provisioner)
	default:
		f.note("", "%s; the replacement has Retain", o.ReclaimPolicy)
	}
	return nil
}
