package migrate

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
)

const (
	// probeSuffix makes a name that no volume has.
	probeSuffix = "-flex2csi-probe"
	maxName     = 253
)

// dryRunChecks have the API server check the replacement.
func dryRunChecks() []check {
	return []check{
		{"dry-run", "that the API server takes the replacement, with all its admission plugins, policies and webhooks, and stores it as it is, and that it deletes the PersistentVolume and takes its finalizers", (*subject).rendered, (*subject).checkDryRun},
	}
}

// checkDryRun has the API server look at the replacement, with all its admission
// plugins, policies and webhooks: under its own name, of which nothing but that
// it is taken may be said, and under another one, to see what would be stored.
func (s *subject) checkDryRun(ctx context.Context, f *findings) error {
	if s.w.untried != "" {
		f.note("", "replacement not checked by the API server (%s); apply has it checked", s.w.untried)
		return nil
	}
	_, exists, err := s.w.client.DryRunCreate(ctx, objects.PersistentVolumes().Resource, &s.v.Replacement.Unstructured)
	switch {
	case err != nil:
		f.refused(err, "take the replacement")
		return nil
	case !exists:
		f.fails("plan again", "PersistentVolume %s is not there any more", s.v.Name)
		return nil
	}
	s.probe(ctx, f)
	return s.checkRemoval(ctx, f)
}

// checkRemoval has it look at the end of the old volume, of which the second request comes when
// there is no way back.
func (s *subject) checkRemoval(ctx context.Context, f *findings) error {
	if s.w.kept != "" {
		f.note("", "whether the API server deletes the PersistentVolume is not checked (%s); apply has it checked", s.w.kept)
		return nil
	}
	pvs := objects.PersistentVolumes().Resource
	if err := s.w.client.DryRunDelete(objects.Short(ctx), pvs, "", s.v.Name, s.old.UID); err != nil {
		f.refused(err, "delete the PersistentVolume")
		return nil
	}
	removed, _ := sortFinalizers(s.old)
	if len(removed) == 0 {
		return nil
	}
	patch, err := json.Marshal(takeFinalizers(string(s.old.UID), "", removed))
	if err != nil {
		return err
	}
	if err := s.w.client.DryRunPatch(objects.Short(ctx), pvs, "", s.v.Name, types.JSONPatchType, patch); err != nil {
		f.refused(err, "take the finalizers of the PersistentVolume")
	}
	return nil
}

// refused sorts what the API server has said to a dry run.
func (f *findings) refused(err error, what string) {
	if objects.OutcomeOf(err) != objects.Refused {
		f.add(Unanswered, "plan again", "whether the API server would %s is not known: %v", what, err)
		return
	}
	do := "see which webhook or policy that is, and have it except this volume; the replacement is in the plan"
	if strings.Contains(err.Error(), "does not support dry run") {
		do = "have the webhook say sideEffects: None or NoneOnDryRun, if that is so: what it thinks of the replacement is not known before"
	}
	f.fails(do, "the API server does not %s: %v", what, err)
}

// probe compares what would be stored with what was asked for.
func (s *subject) probe(ctx context.Context, f *findings) {
	name := s.v.Name
	if most := maxName - len(probeSuffix); len(name) > most {
		name = strings.TrimRight(name[:most], ".-")
	}
	name += probeSuffix
	probe := s.v.Replacement.DeepCopy()
	probe.SetName(name)
	stored, exists, err := s.w.client.DryRunCreate(ctx, objects.PersistentVolumes().Resource, probe)
	switch {
	case err != nil:
		f.refused(err, "take the replacement")
		return
	case exists:
		f.fails("delete it, if it is left from an attempt by hand", "there is a PersistentVolume %s", name)
		return
	}
	if changed := changedBy(probe.Object, stored.Object); len(changed) > 0 {
		f.fails("find out which webhook or policy changes it, and have it leave the volume alone", "the API server would store another volume: %s", strings.Join(changed, "; "))
		return
	}
	f.ok("the API server takes the replacement, and stores it as it is")
}

// mounting are the fields of a volume's spec that say what is mounted, how and
// where. The API server fills in nothing there (pkg/apis/core/v1/defaults.go,
// SetDefaults_PersistentVolume, Kubernetes v1.37.1): what was not asked for,
// a webhook has added.
func mounting() []string { return []string{"csi", "flexVolume", "mountOptions", "nodeAffinity"} }

// changedBy are the fields that matter and would come out in another way.
// Quantities may be written in another way, and who likes may add labels.
func changedBy(want, stored map[string]any) (all []string) {
	spec, metadata := maps.Clone(sub(want, "spec")), map[string]any{}
	delete(spec, "capacity")
	for _, field := range []string{"annotations", "labels"} {
		if values := sub(want, "metadata", field); values != nil {
			metadata[field] = values
		}
	}
	all = differences(map[string]any{"spec": spec, "metadata": metadata}, stored, "")
	return append(all, mountedOtherwise(sub(want, "spec"), sub(stored, "spec"), "spec.")...)
}

// mountedOtherwise are the additions to what says what is mounted, how and where.
func mountedOtherwise(want, is map[string]any, path string) (all []string) {
	for _, field := range mounting() {
		all = append(all, additions(want[field], is[field], path+field)...)
	}
	return all
}
