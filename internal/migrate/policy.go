package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchRetain gives the volume that goes the policy Retain.
func (m *migration) patchRetain(ctx context.Context) error {
	return m.patchVolume(ctx, m.c, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": m.rec.FromUID},
		"spec":     map[string]any{"persistentVolumeReclaimPolicy": policyRetain},
	})
}

// patchVolume changes the PersistentVolume.
func (m *migration) patchVolume(ctx context.Context, c *objects.Client, kind types.PatchType, change any) error {
	_, err := m.patch(ctx, c, objects.PersistentVolumes().Resource, "", m.rec.Volume, kind, change)
	return err
}

// patch changes an object, with the Lease. The answer is no more than its metadata.
func (m *migration) patch(ctx context.Context, c *objects.Client, r schema.GroupVersionResource, namespace, name string, kind types.PatchType, change any) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(change)
	if err == nil {
		err = m.checkLease()
	}
	if err != nil {
		return nil, err
	}
	return c.Patch(objects.Short(ctx), r, namespace, name, kind, text)
}

// restorePolicy gives the volume a policy that is not Retain, if its claim has
// it: what is stored on a volume without its claim would be deleted at once.
func (m *migration) restorePolicy(ctx context.Context, pv *volume, policy, provisioner string) error {
	claim, err := m.getClaim(ctx)
	if err != nil {
		return err
	}
	if claim == nil || string(claim.UID) != m.rec.ClaimUID || claim.DeletionTimestamp != nil ||
		pv.Status.Phase != corev1.VolumeBound || pv.claimUID() != m.rec.ClaimUID {
		m.tell(Troubled, m.rec.Stage, fmt.Sprintf("PersistentVolume %s keeps reclaim policy Retain: with %s what is stored would be deleted now, since its claim is not there, or is being deleted", m.rec.Volume, policy))
		return nil
	}
	operations := []operation{ // all of that once more, at the moment of the change
		{Op: "test", Path: "/metadata/uid", Value: pv.UID},
		{Op: "test", Path: "/status/phase", Value: "Bound"},
		{Op: "test", Path: "/spec/claimRef/uid", Value: m.rec.ClaimUID},
		{Op: "add", Path: "/spec/persistentVolumeReclaimPolicy", Value: policy},
	}
	if provisioner != "" {
		operations = append(operations, operation{Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(provisionedBy, "/", "~1"), Value: provisioner})
	}
	return m.patchVolume(ctx, m.c, types.JSONPatchType, operations)
}

// finalPolicy is the reclaim policy in the end; empty: as it is. A FlexVolume
// gets back what it had. A CSI volume keeps Retain unless a person wants what is
// stored to be deleted with the claim again, by the CSI driver then.
func (m *migration) finalPolicy() (policy, provisioner string, err error) {
	was, err := policyOf(m.rec)
	if err != nil {
		return "", "", err
	}
	switch {
	case m.rec.Direction == journal.ToFlexVolume:
		return was, "", nil
	case !m.rec.RestoreReclaimPolicy || was == policyRetain:
		return "", "", nil
	case was == policyDelete && provisioned(m.rec):
		return was, m.rec.CSIDriver, nil
	}
	return was, "", nil
}

// provisioned reports whether a provisioner was to delete what is stored. What had none keeps
// none: then the CSI driver's is not asked to, and policy Delete does what it did before.
func provisioned(rec *journal.Record) bool {
	old, err := parse(rec.Flex)
	return err == nil && old.GetAnnotations()[provisionedBy] != ""
}

// setRetain gives an object the policy Retain.
func setRetain(object map[string]any) {
	if spec := sub(object, "spec"); spec != nil {
		spec["persistentVolumeReclaimPolicy"] = policyRetain
	}
}

// policyOf is the reclaim policy that the FlexVolume had.
func policyOf(rec *journal.Record) (string, error) {
	old, err := parse(rec.Flex)
	if err != nil {
		return "", fmt.Errorf("read the FlexVolume of the journal: %w", err)
	}
	return text(old.Object, "spec", "persistentVolumeReclaimPolicy"), nil
}
