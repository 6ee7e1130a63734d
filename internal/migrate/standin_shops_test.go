package migrate_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// A shopCluster is a standin with n shops, and with controllers that bind their claims and hand
// their volumes over. Its objects have about the size of those of real clusters.
type shopCluster struct {
	*standin
	documents map[string]*bridgestatus.NodeVolumes // by node
	// handsOver is how long kubelets take to mount a volume.
	handsOver time.Duration
}

func newShopCluster(t testing.TB, volumes, nodes int) *shopCluster {
	t.Helper()
	c := &shopCluster{standin: newStandin(), documents: map[string]*bridgestatus.NodeVolumes{}}
	for _, o := range shops(volumes, nodes) {
		c.add(o)
	}
	for i := 0; i < volumes; i += 100 {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("shop-%d", i/100), Name: "orders", UID: "set"}}
		set.Spec.Template.Spec = podOf().Spec
		c.add(set)
	}
	for i := range volumes {
		node := fmt.Sprintf("node-%d", i%nodes)
		if c.documents[node] == nil {
			d := bridgestatus.NodeVolumesOf(node, "boot", "v1", time.Unix(0, 0), nil, nil)
			d.FlexDrivers = []string{"example.com/disk"}
			c.documents[node] = &d
		}
		c.documents[node].Volumes = append(c.documents[node].Volumes, bridgestatus.NodeVolume{
			PersistentVolume: fmt.Sprintf("pv-%d", i), FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", VolumeHandle: fmt.Sprintf("vol-%d", i),
			Staged: bridgestatus.StagedAsByKubelet, Pods: []bridgestatus.NodePod{{UID: fmt.Sprintf("pod-%d", i)}},
		})
	}
	for node := range c.documents {
		c.add(c.document(node))
	}
	c.settle = c.control
	return c
}

func (c *shopCluster) document(node string) *corev1.ConfigMap {
	text, err := c.documents[node].Encode()
	if err != nil {
		panic(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: bridgestatus.Namespace, Name: node, Labels: map[string]string{bridgestatus.Label: "true"}},
		Data:       map[string]string{bridgestatus.Key: text},
	}
}

// add adds an object with what makes up most of it in a real cluster.
func (c *shopCluster) add(o runtime.Object) {
	filler := 500
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		o.Spec.PersistentVolumeReclaimPolicy, o.Status.Phase = corev1.PersistentVolumeReclaimRetain, corev1.VolumeBound
		o.Finalizers = []string{"kubernetes.io/pv-protection"}
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimBound
	case *corev1.Pod:
		i := strings.TrimSuffix(strings.TrimPrefix(o.Name, "orders-"), "-0")
		o.UID, filler = types.UID("pod-"+i), 3000
	case *corev1.Node:
		filler = 2000
		for i := range 25 {
			image := fmt.Sprintf("registry.example.com/team/image-%d", i)
			o.Status.Images = append(o.Status.Images, corev1.ContainerImage{Names: []string{image + "@sha256:" + strings.Repeat("0", 64), image + ":v1"}, SizeBytes: 1 << 27})
		}
	}
	u := c.object(o)
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", filler) + `":{}}`)}})
	c.put(gvr.Resource, u, false)
}

func (c *shopCluster) object(o runtime.Object) *unstructured.Unstructured {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	u, err := objects.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	u.SetGroupVersionKind(kinds[0])
	return u
}

// control is what the volume controller, the control plane and the bridges do. It has the lock.
func (c *shopCluster) control(resource string, o *unstructured.Unstructured, gone bool) {
	if resource != "persistentvolumes" {
		return
	}
	namespace, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace")
	claim, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "name")
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	setPhase := func(phase string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, phase, "status", "phase")
		}
	}
	switch {
	case gone:
		c.edit("persistentvolumeclaims", namespace+"/"+claim, setPhase("Lost"))
	case phase == "Available":
		c.edit("persistentvolumes", "/"+o.GetName(), setPhase("Bound"))
		c.edit("persistentvolumeclaims", namespace+"/"+claim, setPhase("Bound"))
		if c.handsOver == 0 {
			c.takeOver(o.GetName())
			return
		}
		time.AfterFunc(c.handsOver, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.takeOver(o.GetName())
		})
	}
}

// takeOver is what a kubelet does, and the bridge tells.
func (c *shopCluster) takeOver(volume string) {
	for node, d := range c.documents {
		for i := range d.Volumes {
			if v := &d.Volumes[i]; v.PersistentVolume == volume {
				v.TakenOver, v.Pods[0].TakenOver = true, true
				c.edit("configmaps", bridgestatus.Namespace+"/"+node, func(o *unstructured.Unstructured) {
					_ = unstructured.SetNestedStringMap(o.Object, c.document(node).Data, "data")
				})
				c.edit("nodes", "/"+node, func(o *unstructured.Unstructured) {
					all, _, _ := unstructured.NestedSlice(o.Object, "status", "volumesAttached")
					attached := map[string]any{"name": string(objects.CSIVolumeName(v.CSIDriver, v.VolumeHandle)), "devicePath": ""}
					_ = unstructured.SetNestedSlice(o.Object, append(all, attached), "status", "volumesAttached")
				})
				return
			}
		}
	}
}

// bustle has a pod change now and then, as many do at any time in a big cluster.
func (c *shopCluster) bustle(stop <-chan struct{}, every time.Duration) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		c.mu.Lock()
		c.edit("pods", fmt.Sprintf("shop-0/orders-%d-0", i%100), func(*unstructured.Unstructured) {})
		c.mu.Unlock()
	}
}

// serveShops returns the address of the cluster, and a kubeconfig for it.
func serveShops(t testing.TB, c *shopCluster) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return writeKubeconfig(t, server.URL)
}

func writeKubeconfig(t testing.TB, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server + `"}}], "users": [{"name": "u", "user": {}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
