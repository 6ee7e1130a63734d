package migrate

import (
	"strings"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// A Step is what is done to come to a stage.
type Step struct {
	Stage journal.Stage `json:"stage"`
	Does  string        `json:"does"`
	// Request is what is asked of the API server; empty: nothing is changed.
	Request string `json:"request,omitempty"`
}

// steps are those of a volume of which there is a replacement.
func steps(v *Volume, r *rendered, attaches bool) []Step {
	pv := "persistentvolumes/" + v.Name
	all := []Step{
		{journal.BackedUp, "write the PersistentVolume, its claim, its VolumeAttachments and its pods' owners to the journal, and the replacement", "create configmaps/flex2csi-migration-… in flex2csi"},
		{journal.Retained, "see to it that nobody deletes what is stored, and read that back", retain(v, pv)},
	}
	if v.Verdict == Offline {
		all = append(all, Step{journal.Stopped, "wait until no pod uses the claim and no node has the volume: a person stops them", ""})
	}
	all = append(all,
		Step{journal.Accepted, "look at all of this once more, and have the API server accept the replacement as a dry run", "create " + pv + " (dry run)"},
		Step{journal.Deleting, "delete the PersistentVolume, which stays until its finalizers are gone", "delete " + pv + " (uid " + v.Original.UID + ", and its resourceVersion)"},
		Step{journal.Deleted, "take away " + list(r.dropped) + "; from here the claim is Lost", "patch " + pv + " (uid, resourceVersion, metadata.finalizers)"},
	)
	if v.Verdict == PodRestart {
		all = append(all, Step{journal.Stopped, "evict the pod, whose successor waits for the claim, and wait until its node has let go of the volume", "create pods/eviction " + first(v.Pods).Name})
	}
	all = append(all, Step{journal.Created, "create the replacement of the same name", "create " + pv})
	if v.Original.Phase == "Bound" {
		all = append(all, Step{journal.Bound, "have the volume controller look at the claim at once, which it does when that changes and else every 15 s, and wait until it is Bound", "patch persistentvolumeclaims " + v.Claim + " (annotation " + MigratedLabel + ")"})
	}
	if attaches && v.Verdict == Live && len(v.Pods) > 0 {
		all = append(all, Step{journal.Attached, "wait until the control plane has adopted the VolumeAttachments", ""})
	}
	if v.Verdict == Live && len(v.Pods) > 0 {
		all = append(all, Step{journal.TakenOver, "wait until the kubelet of each pod has mounted it through its CSI plugin, beside the old mount", ""})
	}
	if v.Verdict == PodRestart {
		all = append(all, Step{journal.TakenOver, "wait until the pod that comes after it is Ready", ""})
	}
	return append(all, Step{journal.Finished, "compare with what there was; restore the reclaim policy if that was decided", finish(v, pv)})
}

func retain(v *Volume, pv string) string {
	if v.Original.ReclaimPolicy == policyRetain {
		return ""
	}
	return "patch " + pv + " (persistentVolumeReclaimPolicy: Retain)"
}

func finish(v *Volume, pv string) string {
	var all []string
	if v.Original.ReclaimPolicy != policyRetain {
		all = append(all, "patch "+pv+" (only with --restore-reclaim-policy)")
	}
	if v.Original.Phase == "Bound" {
		all = append(all, "patch persistentvolumeclaims "+v.Claim+" (without that annotation)")
	}
	return strings.Join(all, "; ")
}

func first(pods []Pod) Pod {
	if len(pods) == 0 {
		return Pod{}
	}
	return pods[0]
}
