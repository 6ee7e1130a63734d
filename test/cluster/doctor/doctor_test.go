// Package doctor_test has doctor look at a real API server.
package doctor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	driver     = "disk.csi.example.com"
	flexDriver = "example.com/disk"
)

func TestDoctor(t *testing.T) {
	p := controlplane.Start(t)
	p.Node("node-1", controlplane.NodeDriver{Name: driver, NodeID: "id-1", Count: 3})
	p.Node("node-2")
	attach := true
	p.CSIDriver(driver, storagev1.CSIDriverSpec{AttachRequired: &attach})
	p.FlexVolume("pv1", flexDriver, "ext4", map[string]string{"volumeHandle": "vol-1"})
	status(t, p, "node-1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.99.0" })
	status(t, p, "node-2", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	for name, change := range map[string]func(*storagev1.VolumeAttachment){
		"vol-1":   func(*storagev1.VolumeAttachment) {},
		"no-node": func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "gone" },
		"fails": func(a *storagev1.VolumeAttachment) {
			a.Status.Attached, a.Status.AttachError = false, &storagev1.VolumeError{Message: "rpc error: the pool is full"}
		},
		"foreign": func(a *storagev1.VolumeAttachment) { a.Labels, a.Spec.NodeName = nil, "gone" },
	} {
		makeAttachment(t, p, name, change)
	}
	t.Run("all", func(t *testing.T) { lookAtAll(t, p.With(t)) })
	t.Run("node", func(t *testing.T) { lookAtNode(t, p.With(t)) })
	t.Run("kubelets", func(t *testing.T) { lookAtKubelets(t, p.With(t)) })
	t.Run("rights", func(t *testing.T) { withFewRights(t, p.With(t)) })
	t.Run("pods", func(t *testing.T) { lookAtPods(t, p.With(t)) })
	t.Run("inline", func(t *testing.T) { lookAtInline(t, p.With(t)) })
	t.Run("policies", func(t *testing.T) { lookAtPolicies(t, p.With(t)) })
	t.Run("faults", func(t *testing.T) { withFaults(t, p.With(t)) })
}

func status(t *testing.T, p *controlplane.Plane, node string, change func(*corev1.Node)) {
	t.Helper()
	nodes := p.Admin().CoreV1().Nodes()
	n, err := nodes.Get(t.Context(), node, metav1.GetOptions{})
	if err == nil {
		change(n)
		_, err = nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeAttachment makes one that is attached, of a volume of its own.
func makeAttachment(t *testing.T, p *controlplane.Plane, handle string, change func(*storagev1.VolumeAttachment)) {
	t.Helper()
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: handle, Labels: map[string]string{
			objects.ManagedByLabel: objects.ManagedBy, objects.AttachedByLabel: objects.AttachedByNode,
			objects.NodeLabel: "node-1", objects.VolumeLabel: objects.VolumeID(driver, handle),
		}, Annotations: map[string]string{objects.PersistentVolumeAnnotation: "pv1", objects.FlexDriverAnnotation: flexDriver, objects.PodAnnotation: "default/web"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{
			InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
			},
		}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	change(a)
	api := p.Admin().StorageV1().VolumeAttachments()
	made, err := api.Create(t.Context(), a, metav1.CreateOptions{})
	if err == nil {
		made.Status = a.Status
		_, err = api.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, kubeconfig string) *kube.Cluster {
	t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: kubeconfig, UserAgent: "doctor-test"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// examine looks at the cluster, with a configuration of the bridge.
func examine(t *testing.T, kubeconfig string, change func(*doctor.Options)) *doctor.Report {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: " + flexDriver + "\n  csiDriver: " + driver + "\n  inline: true\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := doctor.Options{Cluster: connect(t, kubeconfig), Config: config, Timeout: 20 * time.Second}
	if change != nil {
		change(&o)
	}
	return doctor.Run(t.Context(), o)
}

// want compares what is no good news, as "id subject".
func want(t *testing.T, r *doctor.Report, wanted ...string) {
	t.Helper()
	got := []string{}
	for _, f := range r.Findings {
		if f.Severity != doctor.OK {
			got = append(got, string(f.ID)+" "+f.Subject)
		}
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("found\n  %s\nwant\n  %s\n%s", strings.Join(got, "\n  "), strings.Join(wanted, "\n  "), text(t, r))
	}
}

func text(t *testing.T, r *doctor.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func lookAtAll(t *testing.T, p *controlplane.Plane) {
	r := examine(t, p.Kubeconfig(controlplane.Admin), nil)
	want(t, r, "attachment-node-gone no-node", "attachment-fails fails",
		"version-skew node-1", "node-not-ready node-2")
	for _, said := range []string{"rpc error: the pool is full", "the name of the node is not known", "3 VolumeAttachments of flex2csi checked, of 4 in all", "v1.99.0, newer than"} {
		if !strings.Contains(text(t, r), said) {
			t.Errorf("%q is not in\n%s", said, text(t, r))
		}
	}
}

// lookAtNode: with the node's name also the CSINode object.
func lookAtNode(t *testing.T, p *controlplane.Plane) {
	r := examine(t, p.Kubeconfig(controlplane.Admin), func(o *doctor.Options) { o.NodeName = "node-1" })
	want(t, r, "attachment-node-gone no-node", "attachment-fails fails", "version-skew node-1")
	makeAttachment(t, p, "one-more", func(*storagev1.VolumeAttachment) {})
	r = examine(t, p.Kubeconfig(controlplane.Admin), func(o *doctor.Options) { o.NodeName = "node-1" })
	if !strings.Contains(text(t, r), "3 volumes of "+driver+" are attached to node node-1, of 3 that may be") {
		t.Errorf("the limit is not found: %s", text(t, r))
	}
	r = examine(t, p.Kubeconfig(controlplane.Admin), func(o *doctor.Options) { o.NodeName = "node-2" })
	if !strings.Contains(text(t, r), "CSINode node-2 has no driver "+driver) {
		t.Errorf("the missing driver is not found: %s", text(t, r))
	}
}

// lookAtKubelets: through the API server, which asks the kubelet.
func lookAtKubelets(t *testing.T, p *controlplane.Plane) {
	x := p.Proxy()
	x.Answer("/api/v1/nodes/node-1/proxy/configz", `{"kubeletconfig":{"volumePluginDir":"/opt/flex/","enableControllerAttachDetach":false}}`)
	r := examine(t, x.Kubeconfig(controlplane.Admin), func(o *doctor.Options) { o.NodeName, o.PluginDir = "node-1", "/opt/other" })
	found := text(t, r)
	for _, said := range []string{"the kubelet of node node-1 reads its drivers from /opt/flex/, not from /opt/other", "node-1 runs with enableControllerAttachDetach: false"} {
		if !strings.Contains(found, said) {
			t.Errorf("%q is not in\n%s", said, found)
		}
	}
}

// withFewRights: the daemon's own token is enough for its own node, but for what
// the kubelet itself says; one without any rights says so and finds nothing.
func withFewRights(t *testing.T, p *controlplane.Plane) {
	p.Apply("../../../install/namespace.yaml", "../../../install/rbac/node.yaml")
	pod := p.Pod("flex2csi", "flex2csi-x", "node-1", "flex2csi-node")
	r := examine(t, p.Kubeconfig(p.ServiceAccountToken(pod)), func(o *doctor.Options) { o.NodeName = "node-1" })
	if len(r.Skipped) != 1 || !strings.Contains(r.Skipped[0].What, "configz") {
		t.Errorf("with the daemon's rights, skipped: %v", r.Skipped)
	}
	if !strings.Contains(text(t, r), "the driver says: rpc error: the pool is full") {
		t.Errorf("with the daemon's rights: %s", text(t, r))
	}
	p.ServiceAccount("default", "powerless")
	r = examine(t, p.Kubeconfig(p.ServiceAccountToken(p.Pod("default", "powerless", "node-1", "powerless"))), func(o *doctor.Options) { o.NodeName = "node-1" })
	want(t, r)
	if len(r.Skipped) < 3 || !strings.Contains(text(t, r), "forbidden") {
		t.Errorf("without rights, skipped: %v", r.Skipped)
	}
}

// lookAtInline: a policy that is missing, one that only warns, and one that denies.
func lookAtInline(t *testing.T, p *controlplane.Plane) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	content := "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: " + flexDriver + "\n  csiDriver: " + driver + "\n"
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() bool {
		r := examine(t, p.Kubeconfig(controlplane.Admin), func(o *doctor.Options) { o.Config, o.NodeName = config, "node-1" })
		return strings.Contains(text(t, r), "no policy denies pods an inline volume (flexVolume in their spec) of "+flexDriver)
	}
	if !open() {
		t.Error("without a policy nothing is found")
	}
	p.Namespace("flex2csi")
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "flex2csi-config"}, Data: map[string]string{"config.yaml": content}}
	if _, err := p.Admin().CoreV1().ConfigMaps("flex2csi").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Apply("../../../install/policy/pods.yaml")
	until := func(wanted bool, what string) {
		for deadline := time.Now().Add(time.Minute); open() != wanted; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("with %s, open is %v", what, !wanted)
			}
		}
	}
	until(false, "a policy")
	bindings := p.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := bindings.Patch(t.Context(), "flex2csi-pods", types.MergePatchType, []byte(`{"spec":{"validationActions":["Audit"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(true, "a policy that does not deny")
}

// lookAtPods: each by all the names that the kubelet may have for it.
func lookAtPods(t *testing.T, p *controlplane.Plane) {
	p.ServiceAccount("default", "app")
	pod := p.Pod("default", "app", "node-2", "app", "pv1")
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "static-node-2", Namespace: "default", Annotations: map[string]string{"kubernetes.io/config.hash": "static-uid"}},
		Spec: corev1.PodSpec{NodeName: "node-2", Containers: []corev1.Container{{Name: "main", Image: "none"}}, Volumes: []corev1.Volume{
			{Name: "inline", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: flexDriver}}},
		}},
	}
	if _, err := p.Admin().CoreV1().Pods("default").Create(t.Context(), mirror, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := connect(t, p.Kubeconfig(controlplane.Admin))
	pods, err := c.PodsOf(t.Context(), "node-2")
	if err != nil || len(pods) != 2 {
		t.Fatalf("PodsOf: %+v, %v", pods, err)
	}
	app, static := pods[0], pods[1]
	if app.Name != "app" || !slices.Equal(objects.PodUIDs(&app), []string{string(pod.UID)}) || !objects.PodUsesClaim(&app, "default", "pv1") || app.Spec.NodeName != "node-2" {
		t.Errorf("the pod with a claim: %+v", app)
	}
	uids, inline := objects.PodUIDs(&static), objects.InlineFlexVolume(&static, "inline")
	if !slices.Contains(uids, "static-uid") || len(uids) != 2 || inline == nil || inline.Driver != flexDriver {
		t.Errorf("the static pod: %+v", static)
	}
	found, err := c.FindAttachments(t.Context(), "pv1", "node-1")
	if err != nil || len(found) != 0 { // they lack that label
		t.Errorf("FindAttachments: %v, %v", found, err)
	}
	all, err := c.ListAttachments(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(a storagev1.VolumeAttachment) bool { return a.Name == "vol-1" })
	a := &all[i]
	if objects.AttachmentHandle(a) != "vol-1" || objects.AttachmentPod(a) != "default/web" || objects.AttachedBy(a) != objects.AttachedByNode ||
		!a.Status.Attached || !slices.Equal(a.Spec.Source.InlineVolumeSpec.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) {
		t.Errorf("vol-1: %+v", a)
	}
}

// withFaults: an API server that is away, or slow, costs its findings. The slow
// one would answer, and other findings come of it, if it was waited for.
func withFaults(t *testing.T, p *controlplane.Plane) {
	x := p.Proxy()
	kubeconfig := x.Kubeconfig(controlplane.Admin)
	for name, fail := range map[string]func(){"away": x.Away, "slow": func() { x.Slow(time.Minute) }} {
		fail()
		r := examine(t, kubeconfig, func(o *doctor.Options) { o.Timeout, o.NodeName = 2*time.Second, "node-1" })
		for _, f := range r.Findings {
			if f.ID != "api-unreachable" && f.ID != "check-hangs" {
				t.Errorf("%s: found %s %s", name, f.ID, f.Subject)
			}
		}
		if r.Count(doctor.Error) != 1 {
			t.Errorf("%s: %s", name, text(t, r))
		}
		x.Back()
		x.Slow(0)
	}
}
