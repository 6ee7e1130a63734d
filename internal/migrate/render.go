package migrate

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Marks of the replacement.
const (
	// MigratedLabel finds all volumes that were migrated.
	MigratedLabel = "flex2csi.io/migrated"
	// FlexDriverAnnotation is the driver that the volume had.
	FlexDriverAnnotation = "flex2csi.io/flex-driver"
	// OriginalAnnotation is the old object without its status: with it alone the
	// volume can be put back.
	OriginalAnnotation = objects.OriginalAnnotation
)

const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// lastApplied is what kubectl apply compares with: of another object.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// protection keeps a bound volume, and is given to each new one
	// (pkg/volume/util/finalizer.go, PVProtectionFinalizer, Kubernetes v1.37.1).
	protection = "kubernetes.io/pv-protection"
	// attacherPrefix begins the finalizers of external-attachers. That of a driver
	// which has no VolumeAttachment of the volume is stale, and keeps it from
	// being attached ever again (longhorn/longhorn#1448).
	attacherPrefix = "external-attacher/"

	policyRetain = "Retain"
	policyDelete = "Delete"
)

// rendered is what becomes of a volume.
type rendered struct {
	object  *Manifest
	mapped  *csivol.Volume
	changes []change
	secrets []SecretCopy
	removed []string // finalizers that the swap removes

	// What the checks say of it.
	otherReadOnly bool // the mapping makes another volume of it where a pod uses it read-only
	modesFound    findings
	secretsFound  findings
}

func (r *rendered) change(field, before, after, why string) {
	if before != after {
		r.changes = append(r.changes, change{field, before, after, why})
	}
}

// drivers are those of the configuration.
type drivers struct {
	all    []*driver
	choose func(flexDriver string, o flex.Options) (int, error)
}

// of returns the driver of a volume; nil: the configuration does not have its FlexVolume
// driver. Its error says why none of several is the volume's.
func (d *drivers) find(old *volume) (*driver, error) {
	if !d.has(old.flexDriver()) {
		return nil, nil
	}
	return d.chosen(old.flexDriver(), optionsOf(old))
}

func (d *drivers) chosen(flexDriver string, o flex.Options) (*driver, error) {
	i, err := d.choose(flexDriver, o)
	if err != nil {
		return nil, err
	}
	return d.all[i], nil
}

func (d *drivers) has(flexDriver string) bool {
	return slices.ContainsFunc(d.all, func(one *driver) bool { return one.config.FlexDriver == flexDriver })
}

// give names a Secret for a stage; false: no driver of the name has secrets for that.
func (d *drivers) give(flexDriver, stage string, ref csivol.SecretRef) (given bool) {
	for _, one := range d.all {
		if one.config.FlexDriver == flexDriver && one.config.Secrets.All()[stage] != nil {
			one.given[stage], given = ref, true
		}
	}
	return given
}

// A driver is one of the configuration.
type driver struct {
	config *bridgeconfig.Driver
	mapper *mapping.Mapper
	// given are Secrets that a person names for stages that have a file.
	given map[string]csivol.SecretRef
}

// render makes the replacement of a volume, as the bridge would have it mounted.
// Its error is what the mapping says of the volume.
func (d *driver) render(ctx context.Context, old *volume) (*rendered, error) {
	mapped, err := d.mapped(ctx, old, false)
	if err != nil {
		return nil, err
	}
	r := &rendered{mapped: mapped, modesFound: findings{name: "access-mode"}, secretsFound: findings{name: "secrets"}}
	r.removed, _ = sortFinalizers(old)
	other, err := d.mapped(ctx, old, true)
	r.otherReadOnly = err != nil || !sameVolume(mapped, other)
	if old.Spec.FlexVolume.ReadOnly {
		r.change("spec.flexVolume.readOnly", "true", "", "it had no effect")
	}
	csi := map[string]any{"driver": mapped.Driver, "volumeHandle": mapped.Handle}
	put(csi, "fsType", mapped.FSType)
	put(csi, "volumeAttributes", mapped.Context)
	d.renderSecrets(r, old, csi)

	spec := runtime.DeepCopyJSON(sub(old.object, "spec"))
	delete(spec, "flexVolume")
	delete(spec, "mountOptions")
	spec["csi"] = csi
	put(spec, "mountOptions", mapped.MountFlags)
	spec["persistentVolumeReclaimPolicy"] = policyRetain
	delete(sub(spec, "claimRef"), "resourceVersion") // of the claim as it was when it was bound
	r.modes(old, spec)
	r.compare(old, mapped)

	metadata, err := r.metadata(old)
	if err != nil {
		return nil, err
	}
	r.object = &Manifest{unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec,
	}}}
	return r, nil
}

// mapped is the volume by the configuration's mapping, secrets left out.
func (d *driver) mapped(ctx context.Context, old *volume, readOnly bool) (*csivol.Volume, error) {
	options := optionsOf(old)
	options.ReadOnly = readOnly
	pv := &csivol.PersistentVolume{}
	for _, mode := range old.Spec.AccessModes {
		pv.AccessModes = append(pv.AccessModes, csivol.AccessMode(mode))
	}
	return d.mapper.WithoutSecrets().Map(ctx, options, pv)
}

// optionsOf returns the options of a call for a FlexVolume, without pod and secrets.
func optionsOf(old *volume) flex.Options {
	options := flex.Options{VolumeName: old.Name, FSType: old.Spec.FlexVolume.FSType, User: map[string]string{}}
	maps.Copy(options.User, old.Spec.FlexVolume.Options)
	return options
}

func sameVolume(a, b *csivol.Volume) bool {
	return a.Key() == b.Key() && a.FSType == b.FSType && a.AccessMode == b.AccessMode &&
		maps.Equal(a.Context, b.Context) && slices.Equal(a.MountFlags, b.MountFlags)
}

// modes puts the mode that the CSI driver is told first: the kubelet's CSI
// plugin takes the first (pkg/volume/csi/csi_attacher.go and csi_mounter.go,
// Kubernetes v1.37.1). With modes that cannot be attached together it stays alone. A
// claim that is bound stays so, whatever modes its volume has (pkg/controller/volume/
// persistentvolume/pv_controller.go, syncBoundClaim).
func (r *rendered) modes(old *volume, spec map[string]any) {
	var modes []string
	for _, m := range old.Spec.AccessModes {
		modes = append(modes, string(m))
	}
	want := string(r.mapped.AccessMode)
	after := modes
	if want != "" && !(len(modes) > 0 && modes[0] == want) {
		if want == string(csivol.ReadWriteOncePod) || slices.Contains(modes, string(csivol.ReadWriteOncePod)) {
			r.modesFound.fails("change volume.accessMode of the configuration",
				"the mapping says %s and the PersistentVolume has %s: ReadWriteOncePod goes with no other", want, strings.Join(modes, ", "))
			return
		}
		after = append([]string{want}, slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == want })...)
	}
	why := "the bridge tells the CSI driver " + want + ", and the kubelet tells it the first"
	if one := attachable(after, r.mapped.AccessMode); len(one) < len(after) {
		after, why = one, "a CSI volume with ReadWriteOnce and ReadOnlyMany cannot be attached; the bridge tells the CSI driver "+one[0]
		r.modesFound.note("", "a CSI volume cannot have both ReadWriteOnce and ReadOnlyMany; the replacement has %s, which the bridge tells the CSI driver, and the claim stays bound", one[0])
	}
	put(spec, "accessModes", after)
	r.change("spec.accessModes", strings.Join(modes, ", "), strings.Join(after, ", "), why)
}

func attachable(modes []string, told csivol.AccessMode) (left []string) {
	all := make([]csivol.AccessMode, len(modes))
	for i, m := range modes {
		all[i] = csivol.AccessMode(m)
	}
	for _, m := range csivol.Attachable(all, told) {
		left = append(left, string(m))
	}
	return left
}

// compare notes what a person would look for.
func (r *rendered) compare(old *volume, mapped *csivol.Volume) {
	source := old.Spec.FlexVolume
	r.change("spec", "flexVolume "+source.Driver, "csi "+mapped.Driver, "the mapping of the configuration")
	r.change("spec.csi.volumeHandle", "", mapped.Handle, "")
	r.change("spec.csi.fsType", source.FSType, mapped.FSType, "volume.fsType of the configuration")
	before := old.Spec.MountOptions
	r.change("spec.mountOptions", strings.Join(before, ","), strings.Join(mapped.MountFlags, ","), "volume.mountFlags of the configuration")
	r.change("spec.persistentVolumeReclaimPolicy", old.policy(), policyRetain, "so that nothing that is stored can be deleted; restored in the end only if that is asked for")
}

// metadata is the old one's without what is the object's own, and with where it
// comes from.
func (r *rendered) metadata(old *volume) (map[string]any, error) {
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, old.Labels)
	labels[MigratedLabel] = "true"
	maps.Copy(annotations, old.Annotations)
	for name, why := range map[string]string{
		provisionedBy: "with it the old provisioner would be asked to delete the volume; the CSI driver's name comes with policy Delete, if that is asked for",
		lastApplied:   "it describes a FlexVolume",
	} {
		if before, ok := annotations[name]; ok {
			delete(annotations, name)
			if name == lastApplied {
				before = "…"
			}
			r.change("metadata.annotations["+name+"]", before, "", why)
		}
	}
	original, err := encode(stripped(old.object))
	if err != nil {
		return nil, err
	}
	annotations[FlexDriverAnnotation] = old.flexDriver()
	annotations[OriginalAnnotation] = string(original)
	metadata := map[string]any{"name": old.Name}
	put(metadata, "labels", labels)
	put(metadata, "annotations", annotations)
	if owners, ok := sub(old.object, "metadata")["ownerReferences"].([]any); ok {
		metadata["ownerReferences"] = runtime.DeepCopyJSONValue(owners)
	}
	return metadata, nil
}

// stripped is an object without what the API server alone says of it: what one
// would create.
func stripped(old map[string]any) map[string]any {
	object := runtime.DeepCopyJSON(old)
	delete(object, "status")
	metadata := sub(object, "metadata")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink", "finalizers"} {
		delete(metadata, field)
	}
	delete(sub(metadata, "annotations"), lastApplied)
	delete(sub(object, "spec", "claimRef"), "resourceVersion")
	return object
}

// list is for sentences.
func list(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// original is what is to be known of the old volume later.
func original(old *volume) Original {
	return Original{
		UID: string(old.UID), ResourceVersion: old.ResourceVersion,
		ClaimUID: old.claimUID(), Phase: string(old.Status.Phase),
		ReclaimPolicy: old.policy(),
		Finalizers:    old.Finalizers,
		Provisioner:   old.Annotations[provisionedBy],
		object:        old.object,
	}
}
