package migrate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

const (
	csiDriver  = "disk.csi.example.com"
	flexDriver = "example.com/disk"
	rbdDriver  = "rbd.csi.ceph.com"
	bootID     = "0b7c1f8e-0000-4000-8000-000000000001"

	configuration = `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- flexDriver: example.com/disk
  csiDriver: disk.csi.example.com
- flexDriver: example.com/share
  csiDriver: share.csi.example.com
  volume:
    handle: options.share
    context: '{"share": options.share}'
    mountFlags: splitOptions(options.?opts.orValue(""))
  secrets:
    nodeStage:
      fromFlexSecret: {userName: username, userPassword: password, domain: domain}
      optional: [domain]
- flexDriver: example.com/file
  csiDriver: share.csi.example.com
  secrets:
    nodePublish: {file: /etc/secret}
- flexDriver: example.com/process
  csiDriver: share.csi.example.com
- flexDriver: ceph.rook.io/rook
  csiDriver: rbd.csi.ceph.com
  attach: None
`
)

// world is a control plane with two nodes that have the CSI drivers.
type world struct {
	*controlplane.Plane
	t   *testing.T
	kcm *controlplane.Part
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{Plane: controlplane.Start(t), t: t}
	w.kcm = w.StartControllerManager()
	w.CSIDriver(csiDriver, storagev1.CSIDriverSpec{})
	w.CSIDriver(rbdDriver, storagev1.CSIDriverSpec{})
	w.CSIDriver("share.csi.example.com", storagev1.CSIDriverSpec{AttachRequired: new(bool)})
	all := []controlplane.NodeDriver{{Name: csiDriver, NodeID: "id"}, {Name: rbdDriver, NodeID: "id"}, {Name: "share.csi.example.com", NodeID: "id"}}
	w.node("node-1", all...)
	w.node("node-2", all...)
	w.node("bare")
	w.Namespace(migrate.Namespace)
	w.Namespace(bridgestatus.Namespace)
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "as in each namespace of a whole cluster"}}
	_, err := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Create(t.Context(), ca, metav1.CreateOptions{})
	w.check(err)
	return w
}

func (w *world) with(t *testing.T) *world { return &world{w.With(t), t, w.kcm} }

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(name string, drivers ...controlplane.NodeDriver) {
	w.t.Helper()
	w.Node(name, drivers...)
	patch := []byte(`{"status":{"nodeInfo":{"bootID":"` + bootID + `","kubeletVersion":"v1.37.1"}}}`)
	_, err := w.Admin().CoreV1().Nodes().Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.check(err)
}

// disk makes a FlexVolume with a claim of the same name.
func (w *world) disk(name string, change ...func(*corev1.PersistentVolume)) {
	w.t.Helper()
	w.FlexVolume(name, flexDriver, "ext4", map[string]string{"volumeID": "vol-" + name, "zone": "a"})
	for _, c := range change {
		w.change(name, c)
	}
}

// change changes a volume.
func (w *world) change(name string, change func(*corev1.PersistentVolume)) {
	w.t.Helper()
	for range 10 { // others write, too
		pv, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), name, metav1.GetOptions{})
		w.check(err)
		change(pv)
		if _, err = w.Admin().CoreV1().PersistentVolumes().Update(w.t.Context(), pv, metav1.UpdateOptions{}); err == nil {
			return
		}
		w.t.Log(err)
	}
	w.t.Fatalf("%s could not be changed", name)
}

// pod makes one that runs.
func (w *world) pod(name, node, claim string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	pod := w.Pod("default", name, node, "default", claim)
	pod.Status.Phase = corev1.PodRunning
	pod, err := w.Admin().CoreV1().Pods("default").UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{})
	w.check(err)
	for _, c := range change {
		c(pod)
	}
	if len(change) > 0 {
		pod, err = w.Admin().CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{})
		w.check(err)
	}
	return pod
}

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		is := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "1", Controller: &is}}
	}
}

// bridge has the bridge of a node say what it has; the volumes come on top of
// those of before.
func (w *world) bridge(node string, volumes ...bridgestatus.NodeVolume) {
	w.t.Helper()
	d := bridgestatus.NodeVolumesOf(node, bootID, "v1", time.Now(), nil, nil)
	d.FlexDrivers = []string{flexDriver}
	maps := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	if old, err := maps.Get(w.t.Context(), node, metav1.GetOptions{}); err == nil {
		before, err := bridgestatus.DecodeNodeVolumes(old.Data[bridgestatus.Key])
		w.check(err)
		d.Volumes = before.Volumes
		w.check(maps.Delete(w.t.Context(), node, metav1.DeleteOptions{}))
	}
	d.Volumes = append(d.Volumes, volumes...)
	text, err := d.Encode()
	w.check(err)
	_, err = maps.Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: node}, Data: map[string]string{bridgestatus.Key: text}}, metav1.CreateOptions{})
	w.check(err)
}

// has is what the bridge has of a disk for pods.
func has(volume string, pods ...*corev1.Pod) bridgestatus.NodeVolume {
	v := bridgestatus.NodeVolume{
		PersistentVolume: volume, FlexDriver: flexDriver, CSIDriver: csiDriver, VolumeHandle: "vol-" + volume,
		Staged: bridgestatus.StagedAsByKubelet,
	}
	for _, p := range pods {
		v.Pods = append(v.Pods, bridgestatus.NodePod{UID: string(p.UID)})
	}
	return v
}

// inlineAttachment is the bridge's VolumeAttachment of a disk.
func inlineAttachment(volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: objects.AttachmentName("vol-"+volume, csiDriver, node), Labels: map[string]string{objects.ManagedByLabel: objects.ManagedBy}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: csiDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{
			InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "vol-" + volume}},
			},
		}},
	}
}

// attached makes the bridge's VolumeAttachment of a disk.
func (w *world) attached(volume, node string, change ...func(*storagev1.VolumeAttachment)) {
	w.t.Helper()
	o := inlineAttachment(volume, node)
	for _, c := range change {
		c(o)
	}
	o, err := w.Admin().StorageV1().VolumeAttachments().Create(w.t.Context(), o, metav1.CreateOptions{})
	w.check(err)
	o.Status.Attached = true
	_, err = w.Admin().StorageV1().VolumeAttachments().UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	w.check(err)
}

func (w *world) cluster(token string) *objects.Client {
	w.t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: w.Kubeconfig(token), UserAgent: "flex2csi-test"})
	w.check(err)
	return c.Objects()
}

func (w *world) clusterAt(x *controlplane.Proxy) *objects.Client {
	w.t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(controlplane.Admin), UserAgent: "flex2csi-test"})
	w.check(err)
	return c.Objects()
}

func (w *world) planner(client *objects.Client) *migrate.Planner {
	w.t.Helper()
	c, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	w.check(err)
	return &migrate.Planner{Client: client, Config: c, Server: "test", Now: time.Now}
}

// plan plans as the administrator.
func (w *world) plan(s migrate.Selection) *migrate.Plan {
	w.t.Helper()
	plan, err := w.planner(w.cluster(controlplane.Admin)).Plan(w.t.Context(), &s)
	w.check(err)
	return plan
}

// one plans one volume.
func (w *world) one(name string) *migrate.PlannedVolume {
	w.t.Helper()
	return w.plan(migrate.Selection{Names: []string{name}}).Volumes[0]
}

// says wants a method, and a check with a text in its evidence.
func says(t *testing.T, v *migrate.PlannedVolume, method migrate.Method, check string, status migrate.CheckStatus, evidence string) {
	t.Helper()
	found := slices.ContainsFunc(v.Checks, func(c migrate.Check) bool {
		return c.Name == check && c.Status == status && strings.Contains(c.Evidence, evidence)
	})
	if v.Method != method || !found {
		text, err := json.MarshalIndent(v.Checks, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s: method %s (%q), want %s and %s of %s with %q in\n%s", v.Name, v.Method, v.Why, method, status, check, evidence, text)
	}
}
