package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// restorePolicy gives the volume a policy that is not Retain, if its claim has
// it: what is stored on a volume without its claim would be deleted at once.
func (o *one) restorePolicy(ctx context.Context, pv *volume, policy, provisioner string) error {
	claim, err := o.claim(ctx)
	if err != nil {
		return err
	}
	if claim == nil || string(claim.UID) != o.rec.ClaimUID || claim.DeletionTimestamp != nil ||
		pv.Status.Phase != corev1.VolumeBound || pv.claimUID() != o.rec.ClaimUID {
		o.tell(Troubled, o.rec.Stage, fmt.Sprintf("PersistentVolume %s keeps reclaim policy Retain: with %s what is stored would be deleted now, since its claim is not there, or is being deleted", o.rec.Volume, policy))
		return nil
	}
	operations := []operation{ // all of that once more, at the moment of the change
		{Op: "test", Path: "/metadata/uid", Value: pv.UID},
		{Op: "test", Path: "/status/phase", Value: "Bound"},
		{Op: "test", Path: "/spec/claimRef/uid", Value: o.rec.ClaimUID},
		{Op: "add", Path: "/spec/persistentVolumeReclaimPolicy", Value: policy},
	}
	if provisioner != "" {
		operations = append(operations, operation{Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(provisionedBy, "/", "~1"), Value: provisioner})
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	_, err = o.c.Patch(ctx, objects.PersistentVolumes().Resource, "", o.rec.Volume, types.JSONPatchType, patch)
	return err
}

// finalPolicy is the reclaim policy in the end; empty: as it is. A FlexVolume
// gets back what it had. A CSI volume keeps Retain unless a person wants what is
// stored to be deleted with the claim again, by the CSI driver then.
func (o *one) finalPolicy() (policy, provisioner string, err error) {
	was, err := policyOf(o.rec)
	if err != nil {
		return "", "", err
	}
	switch {
	case o.rec.Direction == journal.ToFlexVolume:
		return was, "", nil
	case !o.rec.RestoreReclaimPolicy || was == policyRetain:
		return "", "", nil
	case was == policyDelete:
		return was, o.rec.CSIDriver, nil
	}
	return was, "", nil
}
