package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// judge looks at all that one volume needs. Its checks are in the order in which
// a person would look.
type judge struct {
	w   *world
	d   *driver // nil: the configuration does not have the driver
	old *volume
	v   *Volume
	r   *rendered // nil: no replacement could be made

	claim  *corev1.PersistentVolumeClaim
	driver *storagev1.CSIDriver // the CSIDriver; nil: there is none
}

func (j *judge) check(name string, s Status, do, evidence string, args ...any) {
	j.v.Checks = append(j.v.Checks, Check{Name: name, Status: s, Evidence: fmt.Sprintf(evidence, args...), Do: do})
}

// unknown is a check that could not be made: what is not known is not risked.
func (j *judge) unknown(name string, err error) {
	j.check(name, Fails, "plan again", "could not be looked at: %v", err)
}

func (j *judge) expect(format string, args ...any) {
	j.v.Expect = append(j.v.Expect, fmt.Sprintf(format, args...))
}

// attaches reports whether volumes of the CSI driver are attached; without a
// CSIDriver object they are (pkg/volume/csi/csi_plugin.go, CanAttach, Kubernetes
// v1.37.1).
func (j *judge) attaches() bool {
	return j.driver == nil || j.driver.Spec.AttachRequired == nil || *j.driver.Spec.AttachRequired
}

// volume judges one.
func (j *judge) volume(ctx context.Context) {
	v := j.v
	v.Name, v.FlexDriver, v.Claim = j.old.Name, j.old.flexDriver(), j.old.claim()
	v.Original = original(j.old)
	if j.old.Spec.FlexVolume == nil {
		j.other()
		j.conclude()
		return
	}
	j.checkState()
	j.checkClaim(ctx)
	j.checkMapping(ctx)
	if j.r != nil {
		j.checkHandle(ctx)
		j.checkDriver(ctx)
		j.checkSecrets(ctx)
		j.checkPods(ctx)
		j.checkNodes(ctx)
		j.checkAttachments(ctx)
		j.checkVolumesAttached(ctx)
		j.checkOwners()
		j.checkPolicy()
		j.checkDryRun(ctx)
	}
	j.conclude()
	v.attaches = j.attaches()
	if j.r != nil && v.Verdict != No {
		v.Steps = steps(v, j.r, j.attaches())
		j.expectations()
	}
}

// other is a volume that is no FlexVolume.
func (j *judge) other() {
	j.v.CSIDriver, j.v.Handle = j.old.csi()
	was := j.old.Annotations[FlexDriverAnnotation]
	switch {
	case j.old.Spec.CSI == nil:
		j.check("flex-volume", Fails, "", "it is no FlexVolume")
	case was != "":
		j.v.Migrated = true
		j.check("flex-volume", Fails, "flex2csi migrate rollback makes a FlexVolume of it again", "it has been migrated already: it was a FlexVolume of %s", was)
	default:
		j.check("flex-volume", Fails, "", "it is a CSI volume of %s", j.v.CSIDriver)
	}
}

// stamp is a time as the API server writes it.
func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// checkState: what the PersistentVolume says of itself.
func (j *judge) checkState() {
	switch phase := j.v.Original.Phase; {
	case j.old.deleting():
		j.check("state", Fails, "find out who deletes it", "it is being deleted since %s", stamp(j.old.DeletionTimestamp))
	case phase == "Bound":
		j.check("state", OK, "", "Bound to claim %s", j.v.Claim)
	case phase == "Available":
		j.check("state", Note, "", "it is Available: no claim has it, and one may take it while it is replaced")
	case phase == "Released":
		j.check("state", Note, "", "it is Released: its claim %s is gone, and no pod can have it", j.v.Claim)
	default:
		j.check("state", Fails, "see what is wrong with it, and plan again", "its phase is %q", phase)
	}
	if mode := j.old.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		j.check("state", Fails, "", "spec.volumeMode is Block, which no FlexVolume can be")
	}
}

// checkClaim: the claim binds to the replacement by its UID.
func (j *judge) checkClaim(ctx context.Context) {
	ref := j.old.Spec.ClaimRef
	if ref == nil || j.v.Original.Phase == "Released" {
		return
	}
	claim, err := get(ctx, j.w, objects.Claims(), ref.Namespace, ref.Name)
	if err != nil {
		j.unknown("claim", err)
		return
	}
	j.claim = claim
	switch {
	case claim == nil:
		j.check("claim", Fails, "", "claim %s is not there", j.v.Claim)
	case claim.UID != ref.UID:
		j.check("claim", Fails, "", "claim %s is another one (uid %s) than the volume is bound to (%s)", j.v.Claim, claim.UID, ref.UID)
	case claim.DeletionTimestamp != nil:
		j.check("claim", Fails, "migrate the volume of the next one, or none", "claim %s is being deleted: it goes with its last pod", j.v.Claim)
	case claim.Spec.VolumeName != j.v.Name:
		j.check("claim", Fails, "", "claim %s wants volume %q", j.v.Claim, claim.Spec.VolumeName)
	case claim.Status.Phase != corev1.ClaimBound:
		j.check("claim", Fails, "see why, and plan again", "claim %s is %s", j.v.Claim, claim.Status.Phase)
	case claim.Annotations["pv.kubernetes.io/bind-completed"] == "":
		j.check("claim", Fails, "", "claim %s has no annotation pv.kubernetes.io/bind-completed: without it the claim would not be bound to the replacement as one that was bound before", j.v.Claim)
	default:
		j.check("claim", OK, "", "claim %s is Bound to it and stays as it is (uid %s)", j.v.Claim, claim.UID)
	}
	if claim == nil {
		return
	}
	var class string
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if class != j.old.Spec.StorageClassName {
		j.check("storage-class", Note, "", "the claim has the storage class %q and the volume %q; an expansion goes by the claim's", class, j.old.Spec.StorageClassName)
	}
}

// checkMapping makes the replacement.
func (j *judge) checkMapping(ctx context.Context) {
	if j.d == nil {
		j.check("mapping", Fails, "write a mapping for it (docs/mapping.md), or take one that there is (flex2csi preset list)", "the configuration has no driver %s", j.v.FlexDriver)
		return
	}
	j.v.CSIDriver = j.d.config.CSIDriver
	r, err := j.d.render(ctx, j.old)
	if err != nil {
		j.check("mapping", Fails, "flex2csi map shows more", "%v", err)
		return
	}
	j.r, j.v.Handle = r, r.mapped.Handle
	j.v.Replacement, j.v.Changes = r.object, r.changes
	j.check("mapping", OK, "", "it becomes %s", r.mapped.Key())
	j.v.Checks = append(j.v.Checks, r.checks...)
}

// checkHandle: two PersistentVolumes of one volume are two who unstage it.
func (j *judge) checkHandle(ctx context.Context) {
	all, err := j.w.volumes(ctx, "")
	if err != nil {
		j.unknown("handle", err)
		return
	}
	for _, o := range all {
		if driver, handle := o.csi(); driver == j.v.CSIDriver && handle == j.v.Handle {
			j.check("handle", Fails, "delete that one, if it is left from an attempt by hand", "PersistentVolume %s is the same volume already (%s)", o.Name, j.r.mapped.Key())
			return
		}
	}
	for _, o := range all {
		if o.Name == j.v.Name || o.flexDriver() != j.v.FlexDriver {
			continue
		}
		if other, err := j.d.mapped(ctx, o, false); err == nil && other.Key() == j.r.mapped.Key() {
			j.check("handle", Fails, "delete one of the two, or make volume.handle of the configuration tell them apart", "PersistentVolume %s would become the same volume (%s)", o.Name, other.Key())
			return
		}
	}
	j.check("handle", OK, "", "no other of %d PersistentVolumes is or would be %s", len(all)-1, j.r.mapped.Key())
}

// conclude makes the verdict of the checks.
func (j *judge) conclude() {
	var fails, notLive []string
	for _, c := range j.v.Checks {
		switch c.Status {
		case Fails:
			fails = append(fails, c.Name+": "+c.Evidence)
		case NotLive:
			notLive = append(notLive, c.Name+": "+c.Evidence)
		}
	}
	v := j.v
	switch {
	case len(fails) > 0:
		v.Verdict, v.Why = No, fails
	case len(notLive) == 0 || len(v.Pods) == 0:
		v.Verdict = Live
	case len(v.Pods) == 1 && restartable(v.Pods[0].Owner):
		v.Verdict, v.Why = PodRestart, notLive
	default:
		notLive = append(notLive, notOneByOne(v.Pods))
		v.Verdict, v.Why = Offline, notLive
	}
}

// restartable: whoever has made the pod makes it anew.
func restartable(owner string) bool {
	kind, _, _ := strings.Cut(owner, "/")
	return slices.Contains([]string{"StatefulSet", "Deployment", "ReplicaSet"}, kind)
}

func notOneByOne(pods []Pod) string {
	if len(pods) > 1 {
		return fmt.Sprintf("%d pods share the claim: all have to be stopped", len(pods))
	}
	if pods[0].Owner == "" {
		return "pod " + pods[0].Name + " is made by nobody: who has made it has to make it anew"
	}
	return "pod " + pods[0].Name + " belongs to " + pods[0].Owner + ", which is not for flex2csi to stop"
}
