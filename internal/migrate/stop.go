package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// What follows is for volumes that are not replaced under running pods.

// evictFor is how long a PodDisruptionBudget may keep a pod while its claim is
// Lost. It has agreed right before.
const evictFor = 2 * time.Minute

// listUsers returns the pods that use the claim and are not over.
func (m *migration) listUsers(ctx context.Context) (all []*corev1.Pod, err error) {
	namespace, claim, ok := strings.Cut(m.rec.Claim, "/")
	if !ok {
		return nil, nil
	}
	found, err := m.world().podsOf(ctx, namespace)
	for _, pod := range found {
		if objects.PodUsesClaim(pod, namespace, claim) && !objects.PodFinished(pod) {
			all = append(all, pod)
		}
	}
	return all, err
}

// waitForNoPods waits until no pod uses the claim: a person stops them.
func (m *migration) waitForNoPods(ctx context.Context) error {
	err := m.wait(ctx, waitFor{
		what: "the pods of claim " + m.rec.Claim,
		look: func(ctx context.Context) (string, error) {
			all, err := m.listUsers(ctx)
			if err != nil || len(all) == 0 {
				return "", err
			}
			how, err := m.howToStop(ctx)
			return names(all) + " uses it: " + how, err
		},
	})
	if err != nil {
		return err
	}
	return m.waitForNodes(ctx)
}

func names(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, "pod "+full(p))
	}
	return strings.Join(all, ", ")
}

// waitForNodes waits until no node has the volume any more.
func (m *migration) waitForNodes(ctx context.Context) error {
	return m.wait(ctx, waitFor{what: "PersistentVolume " + m.rec.Volume, look: m.findHolder, whole: m.inWindow()})
}

// findHolder says who still has the volume: the bridge of a node, a
// VolumeAttachment, a kubelet, a vendor's driver in kube-controller-manager.
//
// Where pods were, their nodes are asked. Where none was, any node may have it, and feeds that
// may be behind do not decide that none has.
func (m *migration) findHolder(ctx context.Context) (string, error) {
	w := m.world()
	held, err := m.findHolderIn(ctx, w)
	if held != "" || err != nil || w.feeds == nil || len(m.nodesOfPods()) > 0 {
		return held, err
	}
	w = m.world()
	w.current = true
	return m.findHolderIn(ctx, w)
}

func (m *migration) findHolderIn(ctx context.Context, w *world) (string, error) {
	documents, err := w.documents(ctx)
	if err != nil {
		return "", err
	}
	for _, document := range documents {
		d, err := bridgestatus.DecodeNodeVolumes(document.Data[bridgestatus.Key])
		says := ""
		switch {
		case err != nil:
			says = "what the bridge of node " + document.Name + " has cannot be read: " + err.Error() + "; see the log of flex2csi there"
		case d.Find(m.rec.CSIDriver, m.rec.VolumeHandle) != nil:
			says = "the bridge of node " + document.Name + " still has it; flex2csi status there says which pods do, which have to end"
		case d.Incomplete:
			says = "the bridge of node " + document.Name + " has too many volumes to say whether it has this one; move pods with FlexVolumes to other nodes"
		default:
			continue
		}
		if held, err := m.findHolderOn(ctx, w, document.Name, says); held != "" || err != nil {
			return held, err
		}
	}
	attached, err := m.attachments(ctx, w)
	if err != nil {
		return "", err
	}
	for _, va := range attached {
		return "it is still attached to node " + va.Spec.NodeName + " (VolumeAttachment " + va.Name + "); kubectl describe volumeattachment " + va.Name + " says what keeps it there", nil
	}
	for _, node := range m.nodesOfPods() {
		if held, err := m.findHolderOn(ctx, w, node, ""); held != "" || err != nil {
			return held, err
		}
	}
	return m.findVendor(ctx, w)
}

// findHolderOn says whether a node still has the volume, which the bridge there may say. Of a node that
// does not answer neither that nor volumesInUse is heard again. Once the operator says that it is
// off, Kubernetes goes by that and does not wait for the kubelet either
// (pkg/controller/volume/attachdetach/reconciler/reconciler.go, hasOutOfServiceTaint, and
// pkg/controller/podgc/gc_controller.go, gcTerminating, Kubernetes v1.37.1); what then takes the
// volume from the node is the end of its VolumeAttachment.
func (m *migration) findHolderOn(ctx context.Context, w *world, name, bridge string) (string, error) {
	node, err := get(ctx, w, objects.Nodes(), "", name)
	switch {
	case err != nil:
		return "", err
	case node == nil && bridge != "":
		return "node " + name + " is deleted: Kubernetes deletes ConfigMap " + bridgestatus.Namespace + "/" + name + " soon, or delete it", nil
	case node == nil, !objects.NodeReady(node) && objects.NodeOutOfService(node):
		return "", nil
	case !objects.NodeReady(node):
		return fmt.Sprintf("node %s is not Ready, and whether it still has the volume is not known: wait until it is Ready; if its machine is off for certain, kubectl taint nodes %s %s=nodeshutdown:NoExecute, or delete the Node", name, name, corev1.TaintNodeOutOfService), nil
	case bridge == "" && (objects.VolumeInUse(node, objects.CSIVolumeName(m.rec.CSIDriver, m.rec.VolumeHandle)) || objects.VolumeInUse(node, m.flexVolume().unique())):
		return "the kubelet of node " + name + " still has it (volumesInUse); its pods there have to end", nil
	}
	return bridge, nil
}

// mayEvict asks whether the pod may be evicted, before anything is deleted.
func (m *migration) mayEvict(ctx context.Context) error {
	return m.wait(ctx, waitFor{
		what: "a PodDisruptionBudget",
		look: func(ctx context.Context) (string, error) { return m.evict(ctx, true) },
	})
}

// evict evicts the pods of the beginning; missing says what does not let it.
func (m *migration) evict(ctx context.Context, dryRun bool) (missing string, err error) {
	for _, p := range m.rec.Pods {
		namespace, name, _ := strings.Cut(p.Name, "/")
		if err := m.checkLease(); err != nil {
			return "", err
		}
		err := m.c.Evict(ctx, namespace, name, types.UID(p.UID), dryRun)
		if objects.IsBudget(err) {
			return "it does not allow to evict pod " + p.Name, nil
		}
		switch objects.OutcomeOf(err) {
		case objects.Done, objects.Gone, objects.Conflict: // it is gone, or another one
		default:
			return "", err
		}
	}
	return "", nil
}

// mayCreate looks whether a pod has come while there was no volume. Volumes that are replaced
// under running pods have them only on nodes that were looked at, the others have
// none. The claim is Lost: the scheduler places no pod of
// it (pkg/scheduler/framework/plugins/volumebinding/volume_binding.go, PreFilter),
// and a kubelet mounts nothing for one
// (pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go,
// getPVCExtractPV, Kubernetes v1.37.1). So no pod can come while this checks
// whether one has come before; an error has the old volume put back.
func (m *migration) mayCreate(ctx context.Context) error {
	all, err := m.listUsers(ctx)
	if err != nil {
		return err
	}
	var lookedAt []string // nodes with pods that may have it
	if m.handsOver() {
		lookedAt = m.nodesOfPods()
	}
	all = slices.DeleteFunc(all, func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" || slices.Contains(lookedAt, p.Spec.NodeName)
	})
	if len(all) > 0 {
		return terminal("%s has come meanwhile, on node %s; plan again", names(all[:1]), all[0].Spec.NodeName)
	}
	return m.checkVendor(ctx)
}

// stopPods evicts the pod, with a successor that waits for the claim, and waits until its
// node has let go of the volume. If that cannot be, the old volume is created again.
func (m *migration) stopPods(ctx context.Context) error {
	pv, err := m.lookBetween(ctx)
	if err != nil || pv != nil { // they were stopped before that was created
		return err
	}
	err = m.save(ctx) // a pod may take minutes to end
	if err == nil {
		err = m.evictAndWait(ctx)
	}
	if err != nil {
		return m.turnBack(ctx, err)
	}
	err = m.writeStage(ctx, journal.Stopped)
	if objects.OutcomeOf(err) == objects.Refused { // put back, the next pod would start, and have to be evicted as well
		m.tell(Troubled, m.rec.Stage, err.Error())
		m.setStage(journal.Stopped)
		return nil
	}
	return err
}

func (m *migration) evictAndWait(ctx context.Context) error {
	err := m.wait(ctx, waitFor{
		what: "a PodDisruptionBudget", atMost: min(evictFor, m.r.timeout()), whole: true,
		look: func(ctx context.Context) (string, error) { return m.evict(ctx, false) },
	})
	if err != nil {
		return err
	}
	for _, p := range m.rec.Pods {
		namespace, name, _ := strings.Cut(p.Name, "/")
		err := m.wait(ctx, waitFor{
			what: "pod " + p.Name, resource: objects.Pods().Resource, namespace: namespace, name: name, whole: true,
			look: func(ctx context.Context) (string, error) {
				pod, err := objects.Pods().Get(ctx, m.c, namespace, name)
				if err != nil || pod == nil || string(pod.UID) != p.UID {
					return "", err
				}
				return fmt.Sprintf("it has not ended yet (its terminationGracePeriodSeconds: %d)", ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)), nil
			},
		})
		if err != nil {
			return err
		}
	}
	return m.waitForNodes(ctx)
}

// waitForSuccessor waits until a pod has come in the place of the one that was stopped,
// and is Ready. None comes if what makes them is gone or scaled to zero.
func (m *migration) waitForSuccessor(ctx context.Context) error {
	var none bool
	err := m.wait(ctx, waitFor{
		what: "the pod that comes after " + m.rec.Pods[0].Name,
		look: func(ctx context.Context) (string, error) {
			all, err := m.listUsers(ctx)
			if err != nil {
				return "", err
			}
			none = len(all) == 0
			for _, pod := range all {
				if string(pod.UID) == m.rec.Pods[0].UID || !podReady(pod) {
					return "pod " + full(pod) + " is not Ready yet", nil
				}
			}
			if none {
				return "it does not exist yet", nil
			}
			return "", nil
		},
	})
	if err != nil {
		if !none || !errors.Is(err, errTimeout) {
			return err
		}
		if wanted, lookErr := m.wantsPods(ctx); wanted || lookErr != nil {
			return errors.Join(err, lookErr)
		}
	}
	return nil
}

// wantsPods reports whether what has made the pod of the beginning makes any.
func (m *migration) wantsPods(ctx context.Context) (bool, error) {
	namespace, _, _ := strings.Cut(m.rec.Claim, "/")
	kind, name, _ := strings.Cut(m.rec.Pods[0].Owner, "/")
	owner, err := m.c.Get(ctx, owners()[kind], namespace, name)
	if owner == nil || err != nil {
		return false, err
	}
	replicas, set, err := unstructured.NestedInt64(owner.Object, "spec", "replicas")
	return !set || replicas != 0, err
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
