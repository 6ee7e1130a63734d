package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/install/render"
)

const (
	configured = "disk.csi.example.com" // by install/base and the chart
	refused    = "ValidatingAdmissionPolicy"
)

// TestNamespaces: in another namespace than flex2csi, which kustomize or Helm was given, no
// policy confined the tokens of nodes, and pods could have inline volumes.
func TestNamespaces(t *testing.T) {
	if !policies() {
		t.Skip("there are no policies before Kubernetes 1.30")
	}
	const migrate = "resources: [PATH/migrate]\npatches:\n- target: {kind: RoleBinding, name: flex2csi-node-volumes}\n" +
		"  patch: |\n    - {op: replace, path: /subjects/0/namespace, value: storage}\n"
	helm := func(namespace string) []*unstructured.Unstructured {
		values := map[string]any{
			"migrate": map[string]any{"enabled": true}, "attach": map[string]any{"enabled": true},
			"rbac": map[string]any{"serviceAccountTokens": map[string]any{"enabled": true, "audiences": []any{"vault"}}},
		}
		objects, err := render.Release{Namespace: namespace, Values: render.Example(values)}.Objects(install + "/chart/flex2csi")
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	for name, test := range map[string]struct {
		namespace string
		objects   []*unstructured.Unstructured
	}{
		"kustomize, flex2csi": {"flex2csi", overlay(t, "kubeadm", "attach", "migrate")},
		"kustomize, storage": {"storage", append(
			own(t, "namespace: storage\nresources: [PATH/overlays/kubeadm]\ncomponents: [PATH/components/attach]\n"), own(t, migrate)...)},
		"helm, flex2csi": {"flex2csi", helm("flex2csi")},
		"helm, storage":  {"storage", helm("storage")},
	} {
		t.Run(name, func(t *testing.T) {
			a := attack{t, controlplane.Start(t), test.namespace}
			a.Namespace(test.namespace)
			a.install(test.objects)
			a.run(strings.HasPrefix(name, "helm"))
		})
	}
}

func own(t *testing.T, kustomization string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render.Own(install, kustomization)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// An attack is by who has stolen the token of node-1 from its pod.
type attack struct {
	t *testing.T
	*controlplane.Plane
	namespace string
}

func (a attack) install(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		if err := a.Replace(o); err != nil && !strings.HasPrefix(o.GetAPIVersion(), "monitoring") {
			a.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// run attacks. tokens: nodes have the right to tokens of ServiceAccounts.
func (a attack) run(tokens bool) {
	a.Node("node-1")
	a.ServiceAccount("default", "default")
	node := a.Client(a.ServiceAccountToken(a.Pod(a.namespace, "node", "node-1", "flex2csi-node")))
	controller := a.Client(a.ServiceAccountToken(a.Pod(a.namespace, "controller", "node-1", "flex2csi-controller")))
	theirs := volumeAttachment("node-1", configured, objects.AttachedByNode)
	theirs.Name = "csi-of-the-control-plane"
	delete(theirs.Labels, objects.ManagedByLabel)
	if _, err := a.Admin().StorageV1().VolumeAttachments().Create(a.t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	secret := volumeAttachment("node-1", configured, objects.AttachedByNode)
	secret.Spec.Source.InlineVolumeSpec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "array"}
	attacks := map[string]func(context.Context) error{
		"the token is that of node node-1, and the VolumeAttachment": attach(node, volumeAttachment("node-2", configured, objects.AttachedByNode)),
		"the configuration has no CSI driver other.csi.example.com":  attach(node, volumeAttachment("node-1", "other.csi.example.com", objects.AttachedByNode)),
		"the configuration has no CSI driver more.csi.example.com":   attach(controller, volumeAttachment("node-1", "more.csi.example.com", objects.AttachedByController)),
		"does not have the Secret":                                   attach(node, secret),
		"no label app.kubernetes.io/managed-by": func(ctx context.Context) error {
			return node.StorageV1().VolumeAttachments().Delete(ctx, theirs.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		},
		"no label flex2csi.io/attached-by=controller":         attach(controller, volumeAttachment("node-1", configured, objects.AttachedByNode)),
		"the token is that of node node-1, and the ConfigMap": report(node, "node-2"),
		"inline volume (flexVolume) of driver example.com/disk": func(context.Context) error {
			return a.DryRun(inlinePod("example.com/disk"))
		},
	}
	if tokens {
		attacks["the token is bound to no pod"] = func(ctx context.Context) error {
			_, err := node.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	for want, try := range attacks {
		wantSoon(a.t, want, try, func(err error) bool {
			return err != nil && strings.Contains(err.Error(), refused) && strings.Contains(err.Error(), want)
		})
	}
	a.useful(node, controller)
}

// useful: what has to work does.
func (a attack) useful(node, controller kubernetes.Interface) {
	for what, try := range map[string]func(context.Context) error{
		"attach to its node":                     attach(node, volumeAttachment("node-1", configured, objects.AttachedByNode)),
		"attach for the kube-controller-manager": attach(controller, volumeAttachment("node-2", configured, objects.AttachedByController)),
		"report its volumes":                     report(node, "node-1"),
	} {
		wantSoon(a.t, what, try, func(err error) bool { return err == nil })
	}
	_, err := node.CoreV1().ConfigMaps(a.namespace).Create(a.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	if err == nil || strings.Contains(err.Error(), refused) {
		a.t.Errorf("write a ConfigMap next to the configuration: %v, want that there is no right to it", err)
	}
}

func volumeAttachment(node, driver, by string) *storagev1.VolumeAttachment {
	return objects.NewAttachment(&csivol.Attachment{Driver: driver, Node: node, Handle: "stolen", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}, by)
}

func attach(client kubernetes.Interface, va *storagev1.VolumeAttachment) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.StorageV1().VolumeAttachments().Create(ctx, va, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// report writes what a node tells of its volumes.
func report(client kubernetes.Interface, node string) func(context.Context) error {
	return func(ctx context.Context) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: node}}
		_, err := client.CoreV1().ConfigMaps("flex2csi-nodes").Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// wantSoon tries until it is as wanted: the API server watches policies and roles.
func wantSoon(t *testing.T, what string, try func(context.Context) error, good func(error) bool) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(t.Context()); good(err) {
			return
		}
	}
	t.Errorf("%s: got %v", what, err)
}
