// Package rbac_test holds the manifests of install to what docs/rbac.md says:
// that with exactly these rights what has to work does, and that what must be
// refused is, by a real API server and with real tokens.
package rbac_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	install   = "../../../install/"
	namespace = "flex2csi"
	driver    = "disk.csi.example.com"
	nodeUser  = "flex2csi-node"

	controllerUser = "flex2csi-controller"
	attachRole     = "components/attach/attach-rbac.yaml"
)

// installed is a control plane with all that install has, and two nodes.
func installed(t *testing.T) *controlplane.Plane {
	t.Helper()
	p := controlplane.Start(t)
	p.Apply(install+"namespace.yaml", install+"rbac/node.yaml", install+"rbac/controller.yaml", install+"policy/attachments.yaml",
		install+"rbac/node-tokens.yaml", install+"policy/tokens.yaml", install+"rbac/node-secrets.yaml")
	configure(p, header+configured)
	for _, node := range []string{"node-1", "node-2"} {
		p.Node(node, controlplane.NodeDriver{Name: driver, NodeID: "id-of-" + node})
	}
	return p
}

const (
	configName = "flex2csi-config"
	header     = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\n"
	configured = "drivers:\n- flexDriver: example.com/disk\n  csiDriver: " + driver + "\n- flexDriver: example.com/other\n  csiDriver: other.csi.example.com\n"
)

// configure replaces the configuration, which policies have as their parameter.
func configure(p *controlplane.Plane, config string) {
	p.ConfigMap(namespace, configName, map[string]string{"config.yaml": config})
}

// podToken is that of the daemon's pod on a node.
func podToken(t *testing.T, p *controlplane.Plane, user, node string) string {
	t.Helper()
	pod, err := p.Admin().CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-", Namespace: namespace},
		Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: user, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.ServiceAccountToken(pod)
}

// token is one that is bound to an object, or to none.
func token(t *testing.T, p *controlplane.Plane, user string, bound *authenticationv1.BoundObjectReference) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	made, err := p.Admin().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), user, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// volumeAttachment is one as the daemon of a node makes it.
func volumeAttachment(node, handle string) *storagev1.VolumeAttachment {
	return volumeAttachmentOf(driver, node, handle)
}

func volumeAttachmentOf(driver, node, handle string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: objects.AttachmentName(handle, driver, node),
			Labels: map[string]string{
				objects.ManagedByLabel:        objects.ManagedBy,
				objects.AttachedByLabel:       objects.AttachedByNode,
				objects.NodeLabel:             objects.LabelValue(node),
				objects.VolumeLabel:           objects.VolumeID(driver, handle),
				objects.PersistentVolumeLabel: "pv-" + handle,
			},
			Annotations: map[string]string{objects.FlexDriverAnnotation: "example.com/disk"},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: node,
			Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
			}},
		},
	}
}

// a is a client that makes and deletes VolumeAttachments.
type attacher struct {
	t *testing.T
	kubernetes.Interface
}

func (a attacher) create(va *storagev1.VolumeAttachment) error {
	_, err := a.StorageV1().VolumeAttachments().Create(a.t.Context(), va, metav1.CreateOptions{})
	return err
}

// tries is create, but nothing is there then.
func (a attacher) tries(va *storagev1.VolumeAttachment) error {
	_, err := a.StorageV1().VolumeAttachments().Create(a.t.Context(), va, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (a attacher) delete(name string) error {
	return a.StorageV1().VolumeAttachments().Delete(a.t.Context(), name, metav1.DeleteOptions{})
}

// wantRefused checks that the policy itself has refused, and why.
func wantRefused(t *testing.T, err error, why string) {
	t.Helper()
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v; want that a policy refuses it: %s", err, why)
	}
}

// wantForbidden wants that RBAC has said no.
func wantForbidden(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("got %v; want that there is no right to it", err)
	}
}

func wantDone(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// eventually waits until a policy that was just made or changed is in force: the
// API server watches them.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var err error
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(50 * time.Millisecond) {
		if err = try(t.Context()); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// enforced waits for the policies: neither may delete what is not flex2csi's, and a node
// may attach volumes of the driver that is configured.
func enforced(t *testing.T, p *controlplane.Plane) {
	t.Helper()
	admin := attacher{t, p.Admin()}
	for _, user := range []string{nodeUser, controllerUser} {
		client := attacher{t, p.Client(token(t, p, user, nil))}
		eventually(t, "the policy for "+user, func(context.Context) error {
			va := volumeAttachment("node-1", "probe-"+user)
			delete(va.Labels, objects.ManagedByLabel)
			if err := admin.create(va); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			err := client.delete(va.Name)
			if err == nil {
				return errors.New("not in force yet")
			}
			if !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				return err
			}
			return admin.delete(va.Name)
		})
	}
	node := attacher{t, p.Client(podToken(t, p, nodeUser, "node-1"))}
	eventually(t, "the configuration", func(context.Context) error {
		if err := node.tries(volumeAttachmentOf("unknown.csi.example.com", "node-1", "probe")); err == nil {
			return errors.New("not in force yet")
		}
		return node.tries(volumeAttachment("node-1", "probe"))
	})
}
