package migrate

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

// A FlexVolume's Secret reaches the driver in mount alone, and its type is the
// driver's name. A CSI PersistentVolume names a Secret for each stage, of which
// all keys are given. Where the configuration has other keys than the old
// Secret, another one has to be made: by a person, since it is a Secret. Nothing
// here keeps or shows a value.

// stages are those with secrets, in the order in which they are called.
func secretStages() []string {
	return []string{"controllerPublish", "nodeStage", "nodePublish", "nodeExpand", "controllerExpand"}
}

// refField is the field of spec.csi for a stage.
func refField(stage string) string { return stage + "SecretRef" }

func (d *driver) renderSecrets(r *rendered, old *volume, csi map[string]any) {
	sources := d.config.Secrets.All()
	for _, stage := range secretStages() {
		source := sources[stage]
		if source == nil {
			continue
		}
		ref, ok := d.reference(r, old, stage, source)
		if !ok {
			continue
		}
		csi[refField(stage)] = map[string]any{"namespace": ref.Namespace, "name": ref.Name}
		r.change("spec.csi."+refField(stage), "", ref.Namespace+"/"+ref.Name, "secrets."+stage+" of the configuration")
	}
}

// reference is the Secret that a stage is to get.
func (d *driver) reference(r *rendered, old *volume, stage string, source *bridgeconfig.SecretSource) (csivol.SecretRef, bool) {
	given, isGiven := d.given[stage]
	switch {
	case isGiven:
		r.wants(stage, "what was there for secrets."+stage, given, nil)
		return given, true
	case source.SecretRef != nil:
		ref := csivol.SecretRef{Namespace: source.SecretRef.Namespace, Name: source.SecretRef.Name}
		r.wants(stage, ref.Namespace+"/"+ref.Name, ref, nil)
		return ref, true
	case source.File != "":
		r.secretsFound.fails(fmt.Sprintf("make a Secret of what is in it, and name that: --secret %s:%s=NAMESPACE/NAME", d.config.FlexDriver, stage),
			"secrets.%s is the file %s on each node, and a PersistentVolume can name a Secret only", stage, source.File)
		return csivol.SecretRef{}, false
	}
	return d.fromFlex(r, old, stage, source)
}

// fromFlex is the volume's own Secret where its keys are already those of the
// CSI driver, and else one that has to be made of it.
func (d *driver) fromFlex(r *rendered, old *volume, stage string, source *bridgeconfig.SecretSource) (csivol.SecretRef, bool) {
	own := ownSecret(old)
	if own.Name == "" && len(source.Optional) == len(source.FromFlexSecret) {
		return csivol.SecretRef{}, false // nothing is wanted of it
	}
	if own.Name == "" {
		r.secretsFound.fails("", "secrets.%s comes from the volume's Secret, and the volume has none (spec.flexVolume.secretRef)", stage)
		return csivol.SecretRef{}, false
	}
	if !isName(own.Name) || !isName(own.Namespace) {
		r.secretsFound.fails("", "spec.flexVolume.secretRef names the Secret %q in namespace %q, which cannot be", own.Name, own.Namespace)
		return csivol.SecretRef{}, false
	}
	same := true
	for key, from := range source.FromFlexSecret {
		same = same && key == from
	}
	if same {
		r.wants(stage, own.Namespace+"/"+own.Name, own, source.FromFlexSecret, source.Optional...)
		return own, true
	}
	to := csivol.SecretRef{Namespace: own.Namespace, Name: own.Name + "-csi"}
	for i := range r.secrets { // another stage with other keys
		if s := &r.secrets[i]; s.To == to.Namespace+"/"+to.Name && !maps.Equal(s.Keys, source.FromFlexSecret) {
			to.Name += "-" + strings.ToLower(stage)
			break
		}
	}
	r.wants(stage, own.Namespace+"/"+own.Name, to, source.FromFlexSecret, source.Optional...)
	return to, true
}

// ownSecret is the one that the kubelet gives to the FlexVolume driver: without
// a namespace that of the pod, and so of the claim (pkg/volume/flexvolume/
// util.go, getSecretNameAndNamespace, Kubernetes v1.37.1).
func ownSecret(old *volume) csivol.SecretRef {
	ref := old.Spec.FlexVolume.SecretRef
	if ref == nil {
		ref = &corev1.SecretReference{}
	}
	namespace := ref.Namespace
	if namespace == "" && old.Spec.ClaimRef != nil {
		namespace = old.Spec.ClaimRef.Namespace
	}
	return csivol.SecretRef{Namespace: namespace, Name: ref.Name}
}

// wants notes that a Secret has to be there. Stages may share it.
func (r *rendered) wants(stage, from string, to csivol.SecretRef, keys map[string]string, optional ...string) {
	name := to.Namespace + "/" + to.Name
	for i := range r.secrets {
		if r.secrets[i].To == name {
			r.secrets[i].Stages = append(r.secrets[i].Stages, refField(stage))
			return
		}
	}
	r.secrets = append(r.secrets, SecretCopy{Stages: []string{refField(stage)}, From: from, To: name, Keys: maps.Clone(keys), optional: optional})
}

// secretChecks are about the Secrets that the replacement names.
func secretChecks() []check {
	return []check{
		{"secrets", "that the Secrets are there, with their keys", (*subject).rendered, (*subject).checkSecrets},
	}
}

// checkSecrets sees whether the Secrets are there, by their keys alone.
func (s *subject) checkSecrets(ctx context.Context, f *findings) error {
	f.all = append(f.all, s.r.secretsFound.all...)
	for i := range s.r.secrets {
		c := &s.r.secrets[i]
		s.w.checkSecret(ctx, f, c)
		if c.From != c.To || !c.There {
			s.v.Secrets = append(s.v.Secrets, *c)
		}
	}
	return nil
}

func (w *world) checkSecret(ctx context.Context, f *findings, s *SecretCopy) {
	fields := strings.Join(s.Stages, ", ")
	if s.From != s.To && len(s.Keys) > 0 { // optional keys that the old one has not are not wanted
		if keys, err := w.secretKeys(ctx, s.From); err == nil && keys != nil {
			maps.DeleteFunc(s.Keys, func(key, from string) bool {
				return slices.Contains(s.optional, key) && !slices.Contains(keys, from)
			})
		}
		s.Command = copyCommand(s)
	}
	keys, err := w.secretKeys(ctx, s.To)
	switch {
	case err != nil:
		f.decide("see that it is there before the volume is migrated", "whether Secret %s (%s) is there is not known: %v", s.To, fields, err)
		return
	case keys == nil && s.From != s.To:
		f.decide("make it with the command that the plan has for it (secrets)", "Secret %s (%s) is not there yet: it has to be made of %s", s.To, fields, s.From)
		return
	case keys == nil:
		f.fails("make it", "Secret %s (%s) is not there", s.To, fields)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		if !slices.Contains(keys, key) && !slices.Contains(s.optional, key) {
			f.fails("add the key, or correct the mapping", "Secret %s (%s) has no key %q, only %q", s.To, fields, key, keys)
			return
		}
	}
	s.There = true
	f.ok("Secret %s (%s) has the keys %q", s.To, fields, keys)
	if more := slices.DeleteFunc(keys, func(k string) bool { _, ok := s.Keys[k]; return ok }); len(s.Keys) > 0 && len(more) > 0 {
		f.note("", "the CSI driver gets all keys of Secret %s (%s), so also %q, which the bridge does not give it", s.To, fields, more)
	}
}

// secretKeys returns the names of the keys of a Secret, sorted; nil if there is
// no such Secret.
func (w *world) secretKeys(ctx context.Context, name string) ([]string, error) {
	namespace, name, ok := strings.Cut(name, "/")
	if !ok {
		return nil, nil
	}
	secret, err := w.client.Get(ctx, objects.Secrets().Resource, namespace, name) // not kept
	if err != nil || secret == nil {
		return nil, err
	}
	data := sub(secret.Object, "data")
	keys := slices.AppendSeq(make([]string, 0, len(data)), maps.Keys(data))
	slices.Sort(keys)
	return keys, nil
}

// copyCommand makes a Secret of another one and shows nothing. Keys have letters,
// digits and .-_ only, and names less (k8s.io/apimachinery/pkg/util/validation,
// IsConfigMapKey).
func copyCommand(s *SecretCopy) string {
	fromNamespace, from, _ := strings.Cut(s.From, "/")
	toNamespace, to, _ := strings.Cut(s.To, "/")
	var data []string
	for _, key := range slices.Sorted(maps.Keys(s.Keys)) {
		data = append(data, fmt.Sprintf(`"%s":"{{index .data "%s"}}"`, key, s.Keys[key]))
	}
	template := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"%s","namespace":"%s"},"data":{%s}}`, to, toNamespace, strings.Join(data, ","))
	return fmt.Sprintf("kubectl get secret %s -n %s -o go-template=%s | kubectl create -f -", report.Quote(from), report.Quote(fromNamespace), report.Quote(template))
}

// isName reports whether the API server takes a name for that of a Secret or a
// namespace. It does not look at those that a PersistentVolume has
// (k8s.io/kubernetes/pkg/apis/core/validation, validateFlexPersistentVolumeSource).
func isName(name string) bool {
	return len(name) <= maxName && regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`).MatchString(name)
}
