package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// sorted are the values of a map in the order of its keys.
func sorted[T any](m map[string]T) (all []T) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[key])
	}
	return all
}

// bridge is what needs the bridge.
func (found *finisher) bridge(ctx context.Context, drivers map[string]DriverEnd) End {
	var end End
	var needed []string
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		if !drivers[name].Free {
			needed = append(needed, name)
		}
	}
	end.obstacle(needed, "FlexVolume drivers that are still needed", "flex2csi migrate finish, without --driver, says for what")
	end.obstacle(found.attached(ctx, false), "VolumeAttachments of the bridge for volumes that are no CSI volumes", "they go when their last pod has gone; flex2csi doctor --on=cluster looks for those that are left")
	end.Free = len(end.Obstacles) == 0
	if !end.Free {
		return end
	}
	for _, node := range slices.Sorted(maps.Keys(found.daemons)) {
		end.Steps = append(end.Steps, found.exec(node, "uninstall"))
	}
	end.Steps = append(end.Steps, "kubectl delete -k install/migrate", "kubectl delete -k . (the overlay that it was installed with), or helm uninstall flex2csi --namespace "+found.home, "kubectl delete namespace "+found.home+", if it was made for flex2csi alone")
	return end
}

// attached are the VolumeAttachments that the bridge has made: those of volumes
// that are CSI volumes, which are the control plane's by now, or the others.
func (found *finisher) attached(ctx context.Context, adopted bool) (names []string) {
	all, err := listObjects(ctx, found.w, objects.VolumeAttachments(), "", metav1.ListOptions{LabelSelector: objects.ManagedByLabel + "=" + objects.ManagedBy})
	if err != nil {
		if !adopted { // say it once
			found.problem("what the bridge has attached is not known: %v", err)
		}
		return nil
	}
	csi := map[string]bool{}
	for _, pv := range found.volumes {
		if driver, handle := pv.csi(); driver != "" {
			csi[driver+" "+handle] = true
		}
	}
	for _, o := range all {
		if csi[o.Spec.Attacher+" "+objects.AttachmentHandle(o)] == adopted {
			names = append(names, fmt.Sprintf("%s (%s on node %s)", o.Name, objects.AttachmentHandle(o), o.Spec.NodeName))
		}
	}
	return names
}

// notes are what to know before.
func (found *finisher) notes(ctx context.Context, drivers []string) []Obstacle {
	var end End
	var done, retained []string
	for _, pv := range sorted(found.volumes) {
		if !migrated(pv) || !slices.Contains(drivers, pv.Annotations[FlexDriverAnnotation]) {
			continue
		}
		done = append(done, pv.Name)
		if found.wasDelete(pv) && pv.policy() == policyRetain {
			retained = append(retained, pv.Name)
		}
	}
	end.obstacle(done, "volumes that were migrated. They can be taken back only as long as the bridge serves their driver", "be sure of them first")
	end.obstacle(retained, "volumes that were to be deleted with their claim, and are kept now (Retain)",
		`where that is to be again: kubectl annotate pv NAME `+provisionedBy+`=CSI-DRIVER, and kubectl patch pv NAME -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}'`)
	end.obstacle(found.attached(ctx, true), "VolumeAttachments that the bridge has made and the control plane has adopted", "nothing: the control plane deletes them after their last pod")
	if n := len(found.records); n > 0 {
		end.obstacle([]string{fmt.Sprintf("%d records", n)}, "the journal, which goes with namespace "+found.home,
			"kubectl -n "+found.home+" get configmaps -l flex2csi.io/migration=true -o yaml > flex2csi-journal.yaml keeps it")
	}
	return end.Obstacles
}

// wasDelete reports whether a volume that was migrated had the policy Delete.
func (found *finisher) wasDelete(pv *volume) bool {
	original := pv.Annotations[OriginalAnnotation]
	o, err := parseVolume([]byte(original))
	return err == nil && o.policy() == policyDelete
}

// classesOf are the StorageClasses that make FlexVolumes of a driver, also if no volume of its is
// left.
func (found *finisher) classesOf(driver string) (names []string) {
	for _, c := range found.classes {
		if c.FlexDriver == driver {
			names = append(names, fmt.Sprintf("%s (provisioner %s)", c.Name, c.Provisioner))
		}
	}
	return names
}
