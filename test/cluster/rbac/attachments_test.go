package rbac_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

func TestAttachments(t *testing.T) {
	p := installed(t)
	enforced(t, p)
	t.Run("node makes", func(t *testing.T) { testNodeMakes(t, p.With(t)) })
	t.Run("node deletes", func(t *testing.T) { testNodeDeletes(t, p.With(t)) })
	t.Run("node changes", func(t *testing.T) { testNodeChanges(t, p.With(t)) })
	t.Run("tokens", func(t *testing.T) { testWhichTokens(t, p.With(t)) })
	t.Run("variables", func(t *testing.T) { testVariables(t, p.With(t)) })
	t.Run("sweeper", func(t *testing.T) { testSweeper(t, p.With(t)) })
	t.Run("controller", func(t *testing.T) {
		p := p.With(t)
		p.Apply(install + attachRole)
		client := attacher{t, p.Client(podToken(t, p, controllerUser, "node-1"))}
		eventually(t, "the right to attach", func(context.Context) error {
			if err := client.create(&storagev1.VolumeAttachment{}); apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				return err
			}
			return nil
		})
		testController(t, p)
	})
	t.Run("others", func(t *testing.T) { testOthers(t, p.With(t)) })
}

// change makes another VolumeAttachment of a good one.
type change func(*storagev1.VolumeAttachment)

// nodeRefusals are what a node alone must not make, and what it is told.
func nodeRefusals() map[string]change {
	return map[string]change{
		"the token is that of node node-1": func(va *storagev1.VolumeAttachment) {
			*va = *volumeAttachment("node-2", "stolen")
		},
		"no label flex2csi.io/attached-by=node": func(va *storagev1.VolumeAttachment) {
			va.Labels[objects.AttachedByLabel] = objects.AttachedByController
		},
	}
}

// refusals are what neither a node nor the controller must make.
func refusals() map[string]change {
	return map[string]change{
		"no label app.kubernetes.io/managed-by": func(va *storagev1.VolumeAttachment) {
			delete(va.Labels, objects.ManagedByLabel)
		},
		"the label flex2csi.io/node is not the node": func(va *storagev1.VolumeAttachment) {
			va.Labels[objects.NodeLabel] = "node-2"
		},
		"no label flex2csi.io/volume": func(va *storagev1.VolumeAttachment) {
			va.Labels[objects.VolumeLabel] = "x"
		},
		"the name of the VolumeAttachment": func(va *storagev1.VolumeAttachment) { va.Name = "csi-1" },
		"has finalizers or owners": func(va *storagev1.VolumeAttachment) {
			va.Finalizers = []string{"example.com/forever"}
		},
		"finalizers or owners": func(va *storagev1.VolumeAttachment) {
			va.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-2", UID: "1"}}
		},
		"names a PersistentVolume": func(va *storagev1.VolumeAttachment) {
			name := "pv-stolen"
			va.Spec.Source = storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}
		},
		"none of the CSI driver that is to attach it": func(va *storagev1.VolumeAttachment) {
			va.Spec.Attacher = "other.csi.example.com"
		},
		"does not have the Secret": func(va *storagev1.VolumeAttachment) {
			va.Spec.Source.InlineVolumeSpec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "bootstrap-token"}
		},
	}
}

func testNodeMakes(t *testing.T, p *controlplane.Plane) {
	node := attacher{t, p.Client(podToken(t, p, nodeUser, "node-1"))}
	va := volumeAttachment("node-1", "good")
	wantDone(t, "make a good one", node.create(va))
	wantDone(t, "delete it", node.delete(va.Name))
	for _, refused := range []map[string]change{refusals(), nodeRefusals()} {
		for why, change := range refused {
			va := volumeAttachment("node-1", "stolen")
			change(va)
			wantRefused(t, node.create(va), why)
		}
	}
	// A driver that attaches without being a CSI volume at all.
	va = volumeAttachment("node-1", "stolen")
	va.Spec.Source.InlineVolumeSpec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
	if err := node.create(va); err == nil {
		t.Error("one that is no CSI volume was made")
	}
}

func testNodeDeletes(t *testing.T, p *controlplane.Plane) {
	admin := attacher{t, p.Admin()}
	node := attacher{t, p.Client(podToken(t, p, nodeUser, "node-1"))}
	theirs := volumeAttachment("node-1", "theirs")
	theirs.Labels = nil // as kube-controller-manager makes them
	controllers := volumeAttachment("node-1", "controllers")
	controllers.Labels[objects.AttachedByLabel] = objects.AttachedByController
	others := volumeAttachment("node-2", "others")
	for why, va := range map[string]*storagev1.VolumeAttachment{
		"the VolumeAttachment has no label":     theirs, // two policies say so
		"no label flex2csi.io/attached-by=node": controllers,
		"the token is that of node node-1":      others,
	} {
		wantDone(t, "make one that is not the node's", admin.create(va))
		wantRefused(t, node.delete(va.Name), why)
	}
	err := node.StorageV1().VolumeAttachments().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	wantForbidden(t, err)
	second := attacher{t, p.Client(podToken(t, p, nodeUser, "node-2"))}
	wantDone(t, "delete what is on its own node", second.delete(others.Name))
}

// testNodeChanges: nodes have no right to it; and with the right, the policy refuses.
func testNodeChanges(t *testing.T, p *controlplane.Plane) {
	node := attacher{t, p.Client(podToken(t, p, nodeUser, "node-1"))}
	va := volumeAttachment("node-1", "changed")
	wantDone(t, "make one", node.create(va))
	patch := func(subresource ...string) error {
		body := []byte(`{"metadata":{"labels":{"x":"y"}},"status":{"attached":true}}`)
		_, err := node.StorageV1().VolumeAttachments().Patch(t.Context(), va.Name, types.MergePatchType, body, metav1.PatchOptions{}, subresource...)
		return err
	}
	wantForbidden(t, patch())
	wantForbidden(t, patch("status"))
	grant(t, p, nodeUser, rbacv1.PolicyRule{
		APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments", "volumeattachments/status"}, Verbs: []string{"update", "patch", "deletecollection"},
	})
	eventually(t, "the rights", func(context.Context) error {
		if err := patch(); !apierrors.IsInvalid(err) {
			return err
		}
		return nil
	})
	wantRefused(t, patch(), "changes no VolumeAttachment")
	wantRefused(t, patch("status"), "changes no VolumeAttachment")
	err := node.StorageV1().VolumeAttachments().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	wantRefused(t, err, "no label")
	if _, err := p.Admin().StorageV1().VolumeAttachments().Get(t.Context(), objects.AttachmentName("theirs", driver, "node-1"), metav1.GetOptions{}); err != nil {
		t.Errorf("another's is gone: %v", err)
	}
}

// grant gives a ServiceAccount of flex2csi one more right.
func grant(t *testing.T, p *controlplane.Plane, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "too-much"}, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := p.Admin().RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "too-much"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "too-much"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: user}},
	}
	if _, err := p.Admin().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testWhichTokens: only one that tells a node will do. For a daemon that runs on
// the host there are tokens that are bound to the Node.
func testWhichTokens(t *testing.T, p *controlplane.Plane) {
	unbound := attacher{t, p.Client(token(t, p, nodeUser, nil))}
	wantRefused(t, unbound.create(volumeAttachment("node-1", "unbound")), "the token tells no node")
	node, err := p.Admin().CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound := attacher{t, p.Client(token(t, p, nodeUser, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}))}
	va := volumeAttachment("node-1", "bound")
	wantDone(t, "make one with a token that is bound to the Node", bound.create(va))
	wantRefused(t, unbound.delete(va.Name), "the token tells no node")
	wantRefused(t, bound.create(volumeAttachment("node-2", "bound")), "the token is that of node node-1")
	wantDone(t, "delete it", bound.delete(va.Name))
}

// testVariables changes those that are for people to change.
func testVariables(t *testing.T, p *controlplane.Plane) {
	node := attacher{t, p.Client(podToken(t, p, nodeUser, "node-1"))}
	withSecret := func(name string) *storagev1.VolumeAttachment {
		va := volumeAttachment("node-1", "secret")
		va.Spec.Source.InlineVolumeSpec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: name}
		return va
	}
	setVariables(t, p, "flex2csi-attachments", map[string]string{"secrets": "['kube-system/array']"})
	eventually(t, "a Secret that is allowed", func(context.Context) error { return node.create(withSecret("array")) })
	wantDone(t, "delete it", node.delete(withSecret("array").Name))
	wantRefused(t, node.create(withSecret("other")), "does not have the Secret")
}

// setVariables changes expressions of a policy.
func setVariables(t *testing.T, p *controlplane.Plane, policy string, expressions map[string]string) {
	t.Helper()
	policies := p.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	o, err := policies.Get(t.Context(), policy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range o.Spec.Variables {
		if e, ok := expressions[v.Name]; ok {
			o.Spec.Variables[i].Expression = e
		}
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"variables": o.Spec.Variables}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Patch(t.Context(), policy, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testController: it may attach to any node, and delete what nodes have left, but
// nothing that is not flex2csi's. Its token was good for an attachment with any Secret,
// of any name, and with finalizers.
func testController(t *testing.T, p *controlplane.Plane) {
	c := attacher{t, p.Client(podToken(t, p, controllerUser, "node-1"))}
	for why, change := range refusals() {
		va := volumeAttachment("node-1", "stolen")
		va.Labels[objects.AttachedByLabel] = objects.AttachedByController
		change(va)
		wantRefused(t, c.create(va), why)
	}
	for _, node := range []string{"node-1", "node-2"} {
		va := volumeAttachment(node, "controller")
		wantRefused(t, c.create(va), "no label flex2csi.io/attached-by=controller")
		wantDone(t, "make a node's", attacher{t, p.Admin()}.create(va))
		wantDone(t, "sweep it", c.delete(va.Name))
		va.Labels[objects.AttachedByLabel] = objects.AttachedByController
		wantDone(t, "make one for kube-controller-manager", c.create(va))
		wantDone(t, "delete it", c.delete(va.Name))
	}
	theirs := volumeAttachment("node-1", "theirs").Name // testNodeDeletes has made it
	wantRefused(t, c.delete(theirs), "no label app.kubernetes.io/managed-by")
}

// testSweeper: without components/attach the controller only deletes. Its token makes
// no VolumeAttachment.
func testSweeper(t *testing.T, p *controlplane.Plane) {
	c := attacher{t, p.Client(podToken(t, p, controllerUser, "node-1"))}
	va := volumeAttachment("node-1", "swept")
	va.Labels[objects.AttachedByLabel] = objects.AttachedByController
	wantForbidden(t, c.create(va))
	wantDone(t, "make one", attacher{t, p.Admin()}.create(va))
	wantDone(t, "sweep it", c.delete(va.Name))
}

// testOthers: other users are not restricted, with our labels or their own.
func testOthers(t *testing.T, p *controlplane.Plane) {
	if _, err := p.Admin().CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "other"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "other"}},
	}
	if _, err := p.Admin().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for who, client := range map[string]attacher{
		"an administrator": {t, p.Admin()},
		"another pod":      {t, p.Client(podToken(t, p, "other", "node-1"))},
	} {
		refused := refusals()
		maps.Copy(refused, nodeRefusals())
		for why, change := range refused {
			va := volumeAttachment("node-1", "others")
			change(va)
			va.Finalizers, va.OwnerReferences = nil, nil // no controller would remove them
			wantDone(t, who+" makes what a node could not: "+why, client.create(va))
			wantDone(t, who+" deletes it", client.delete(va.Name))
		}
	}
}
