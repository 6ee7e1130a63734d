package doctor_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// fakeCluster has faults that a real API server has not at will;
// test/cluster/doctor asks a real one.
type fakeCluster struct {
	version     string
	nodes       []corev1.Node
	drivers     []storagev1.CSIDriver
	onNode      []storagev1.CSINodeDriver
	attachments []storagev1.VolumeAttachment
	pods        []string
	kubelets    map[string]kubelet.Configuration
	open        bool // no policy denies inline volumes
	user        string
	denies      func(attempt) string // of attachments; nil: there is no right to them
	ownOnly     bool                 // there is no right to list nodes
	err         error
	hang        chan struct{} // not nil: nothing is answered before it is closed
}

func newCluster() *fakeCluster {
	return &fakeCluster{
		version: "v1.37.1", nodes: []corev1.Node{kubeNode("node-1", "v1.37.1", ready)},
		kubelets: map[string]kubelet.Configuration{},
	}
}

func kubeNode(name, kubeletVersion string, is ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubeletVersion}}}
	for _, is := range is {
		is(&n)
	}
	return n
}

func ready(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

func outOfService(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
}

// attachedAt is a VolumeAttachment of flex2csi; volume, handle and PersistentVolume have
// its name.
func attachedAt(name, node, by string, at metav1.Time) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: at,
			Labels:      map[string]string{objects.ManagedByLabel: objects.ManagedBy, objects.AttachedByLabel: by},
			Annotations: map[string]string{objects.FlexDriverAnnotation: "example.com/disk", objects.PersistentVolumeAnnotation: name},
		},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: csiName, NodeName: node, Source: storagev1.VolumeAttachmentSource{
			InlineVolumeSpec: &corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: csiName, VolumeHandle: name},
			}},
		}},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
}

func csiDriver(name string, attach bool) storagev1.CSIDriver {
	return storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
}

func (c *fakeCluster) wait() error {
	if c.hang != nil {
		<-c.hang
	}
	return c.err
}

func (c *fakeCluster) Version(context.Context) (string, error) { return c.version, c.wait() }

func (c *fakeCluster) ListNodes(context.Context) ([]corev1.Node, error) {
	if c.ownOnly {
		return nil, errors.New("nodes is forbidden")
	}
	return c.nodes, c.wait()
}

func (c *fakeCluster) DeniesInline(context.Context, string) (string, error) {
	if c.open {
		return "", c.wait()
	}
	return "a policy denies it", c.wait()
}

func (c *fakeCluster) User(context.Context) (authenticationv1.UserInfo, error) {
	return authenticationv1.UserInfo{Username: c.user}, c.wait()
}

// An attempt is a VolumeAttachment that a user tries to make.
type attempt struct {
	As       authenticationv1.UserInfo
	Driver   string
	By       string
	Unmarked bool
}

func (c *fakeCluster) DeniesAttachment(_ context.Context, as authenticationv1.UserInfo, o *storagev1.VolumeAttachment) (string, error) {
	if c.denies == nil {
		return "", apierrors.NewForbidden(storagev1.Resource("volumeattachments"), o.Name, errors.New("RBAC"))
	}
	return c.denies(attempt{As: as, Driver: o.Spec.Attacher, By: objects.AttachedBy(o), Unmarked: !objects.ManagedAttachment(o)}), c.wait()
}

func (c *fakeCluster) ListDrivers(context.Context) ([]storagev1.CSIDriver, error) {
	return c.drivers, c.wait()
}

func (c *fakeCluster) NodeDrivers(context.Context, string) ([]storagev1.CSINodeDriver, error) {
	return c.onNode, c.wait()
}

func (c *fakeCluster) ListAttachments(_ context.Context, ours bool) (all []storagev1.VolumeAttachment, err error) {
	for i := range c.attachments {
		if objects.ManagedAttachment(&c.attachments[i]) || !ours {
			all = append(all, c.attachments[i])
		}
	}
	return all, c.wait()
}

func (c *fakeCluster) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	for i := range c.nodes {
		if c.nodes[i].Name == name {
			return &c.nodes[i], c.wait()
		}
	}
	return nil, c.wait()
}

func (c *fakeCluster) PersistentVolume(_ context.Context, name string, _ bool) (*csivol.PersistentVolume, error) {
	return &csivol.PersistentVolume{Name: name, Claim: csivol.ObjectRef{Namespace: "shop", Name: "claim-of-" + name}}, c.wait()
}

// PodsOf returns pods that use pv1, on node-1.
func (c *fakeCluster) PodsOf(_ context.Context, node string) (pods []corev1.Pod, err error) {
	if node != "node-1" {
		return nil, c.wait()
	}
	for _, uid := range c.pods {
		pods = append(pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid)},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim-of-pv1"},
			}}}},
		})
	}
	return pods, c.wait()
}

func (c *fakeCluster) Kubelet(_ context.Context, node string) (kubelet.Configuration, error) {
	k, ok := c.kubelets[node]
	if !ok {
		return k, errors.New("nodes/proxy is forbidden")
	}
	return k, c.wait()
}

func (c *fakeCluster) look(t *testing.T, change func(*doctor.Options)) *doctor.Report {
	t.Helper()
	o := doctor.Options{Cluster: c, Timeout: 2 * time.Second, Config: t.TempDir() + "/none"}
	if change != nil {
		change(&o)
	}
	return doctor.Run(t.Context(), o)
}

func TestNodes(t *testing.T) {
	c := newCluster()
	c.nodes = append(c.nodes,
		kubeNode("old", "v1.33.9", ready),
		kubeNode("older-but-fine", "v1.34.0-eks-1", ready),
		kubeNode("new", "v1.38.0", ready),
		kubeNode("away", "v1.37.1"),
		kubeNode("dead", "v1.37.1", ready, outOfService),
	)
	r := c.look(t, nil)
	want(t, r, "", "version-skew old", "version-skew new", "node-not-ready away", "node-not-ready dead")
	wantText(t, r, "4 minor versions older than the API server's v1.37.1", "newer than the API server's")
	want(t, c.look(t, func(o *doctor.Options) { o.NodeName = "older-but-fine" }), "")
	want(t, c.look(t, func(o *doctor.Options) { o.NodeName = "unknown" }), "", "node-missing unknown")
}

func TestKubelets(t *testing.T) {
	c := newCluster()
	c.nodes = append(c.nodes, kubeNode("node-2", "v1.37.1", ready), kubeNode("node-3", "v1.37.1", ready))
	c.kubelets["node-1"] = kubelet.Configuration{VolumePluginDir: "/a", EnableControllerAttachDetach: new(true)}
	c.kubelets["node-2"] = kubelet.Configuration{VolumePluginDir: "/b/", EnableControllerAttachDetach: new(false)}
	r := c.look(t, nil)
	want(t, r, "", "plugin-dirs-differ volumePluginDir", "controller-attach-detach-off node-2")
	wantText(t, r, "runs with (nodes/proxy, configz): nodes/proxy is forbidden")
	r = c.look(t, func(o *doctor.Options) { o.NodeName, o.PluginDir = "node-1", "/b" })
	want(t, r, "", "plugin-dir-mismatch /a")
	want(t, c.look(t, func(o *doctor.Options) { o.NodeName, o.PluginDir = "node-1", "/a/" }), "")
}

func TestAttachments(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	make := func(name string, change ...func(*storagev1.VolumeAttachment)) storagev1.VolumeAttachment {
		a := attachedAt(name, "node-1", "node", ago(time.Hour))
		a.Finalizers = []string{"external-attacher/loop-csi-example-com"}
		a.Annotations[objects.PersistentVolumeAnnotation] = "pv1"
		for _, change := range change {
			change(&a)
		}
		return a
	}
	ofVolume2 := func(a *storagev1.VolumeAttachment) { a.Annotations[objects.PersistentVolumeAnnotation] = "pv2" }
	waits := func(a *storagev1.VolumeAttachment) { a.Status.Attached = false }
	deleted := func(since time.Duration) func(*storagev1.VolumeAttachment) {
		return func(a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: now.Add(-since)} }
	}
	volume := func(handle string, modes ...corev1.PersistentVolumeAccessMode) func(*storagev1.VolumeAttachment) {
		return func(a *storagev1.VolumeAttachment) {
			a.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle, a.Spec.Source.InlineVolumeSpec.AccessModes = handle, modes
		}
	}
	c := newCluster()
	c.pods = []string{"uid-1"}
	c.attachments = []storagev1.VolumeAttachment{
		make("fine"),
		make("foreign", func(a *storagev1.VolumeAttachment) { a.Labels, a.Spec.NodeName = nil, "gone" }),
		make("no-node", func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "gone" }),
		make("unused", ofVolume2),
		make("forgotten", ofVolume2, func(a *storagev1.VolumeAttachment) { a.Labels[objects.AttachedByLabel] = "controller" }),
		make("fails", waits, func(a *storagev1.VolumeAttachment) {
			a.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: the pool is full, password=canary"}
		}),
		make("waits", waits, func(a *storagev1.VolumeAttachment) { a.Finalizers = nil }),
		make("just-made", waits, func(a *storagev1.VolumeAttachment) { a.CreationTimestamp = ago(time.Second) }),
		make("stays", deleted(10*time.Minute)),
		make("going", deleted(time.Second)),
		make("twice-1", volume("rwo")),
		make("twice-2", volume("rwo")),
		make("many-1", volume("rwx", corev1.ReadWriteOnce, corev1.ReadWriteMany)),
		make("many-2", volume("rwx", corev1.ReadWriteMany)),
	}
	r := c.look(t, nil)
	want(t, r, "", "attachment-node-gone no-node", "attachment-unused unused", "attachment-unused forgotten", "attachment-fails fails", "attachment-waits waits",
		"attachment-not-deleted stays", "attachment-on-two-nodes "+csiName+"/rwo")
	wantText(t, r, "the driver says: rpc error: the pool is full", "it has not seen it", "kubectl delete volumeattachment no-node", "made 1h0m0s ago by flex2csi controller",
		"Multi-Attach error for volume", "finalizers: external-attacher/loop-csi-example-com")
	if strings.Contains(text(t, r), "canary") {
		t.Error("there is a secret in the report")
	}
}

// TestVolumesAttached: what kube-controller-manager has attached with a driver of
// its own it detaches under pods of a CSI volume.
func TestVolumesAttached(t *testing.T) {
	c := newCluster()
	c.drivers = []storagev1.CSIDriver{csiDriver(csiName, true), csiDriver("share.csi.example.com", false)}
	c.nodes = []corev1.Node{kubeNode("node-1", "v1.37.1", ready)}
	devices := map[string]string{"example.com/disk/vendor": "csi:not-the-controller", "example.com/share/ours": "csi:vol", "example.com/share/vendor-share": "/dev/x"}
	for _, name := range []string{
		"example.com/disk/vendor", "example.com/disk/by-node", "example.com/disk/by-controller", "example.com/disk/another-node",
		"example.com/share/ours", "example.com/share/vendor-share", "example.com/not-bridged/pv", "kubernetes.io/csi/" + csiName + "^vol", "odd",
	} {
		c.nodes[0].Status.VolumesAttached = append(c.nodes[0].Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name), DevicePath: devices[name]})
	}
	c.attachments = []storagev1.VolumeAttachment{
		attachedAt("by-node", "node-1", "node", metav1.Now()),
		attachedAt("by-controller", "node-1", "controller", metav1.Now()),
		attachedAt("another-node", "node-2", "controller", metav1.Now()),
	}
	c.nodes = append(c.nodes, kubeNode("node-2", "v1.37.1", ready))
	vendors := func(r *doctor.Report) (subjects []string) {
		for _, f := range r.Findings {
			if f.ID == "volume-attached-by-vendor" {
				subjects = append(subjects, f.Subject)
			}
		}
		slices.Sort(subjects)
		return subjects
	}
	config := func(o *doctor.Options) {
		o.Config = filepath.Join(t.TempDir(), "config.yaml")
		text := `{"apiVersion": "flex2csi.io/v1alpha1", "kind": "BridgeConfiguration", "drivers": [{"flexDriver": "example.com/disk", "csiDriver": "` + csiName + `"}, {"flexDriver": "example.com/share", "csiDriver": "share.csi.example.com"}]}`
		if err := os.WriteFile(o.Config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := c.look(t, config)
	if got, want := vendors(r), []string{"another-node", "by-node", "vendor", "vendor-share"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	wantText(t, r, "the bridge serves that driver", "Take the driver out of kube-controller-manager")
	// Without a configuration the drivers of the VolumeAttachments are known.
	r = c.look(t, nil)
	if got, want := vendors(r), []string{"another-node", "by-node", "vendor"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	wantText(t, r, "which drivers the bridge serves is not known: --config")
	if got := vendors(c.look(t, func(o *doctor.Options) { config(o); o.NodeName = "node-2" })); len(got) > 0 {
		t.Errorf("on the other node: %q", got)
	}
}

// TestAttachmentWithoutRecord: doctor advised to delete the attachment of a volume
// that CSI pods had. After a migration it still has flex2csi's labels, and when the
// last FlexVolume of it is gone no record.
func TestAttachmentWithoutRecord(t *testing.T) {
	n := newNode(t)
	c := newCluster()
	c.pods = []string{"uid-1"}
	for _, name := range []string{"lost", "migrated"} {
		a := attachedAt(name, "node-1", "node", metav1.NewTime(time.Now().Add(-time.Hour)))
		a.Annotations[objects.PersistentVolumeAnnotation] = "pv1"
		c.attachments = append(c.attachments, a)
	}
	store, err := volstate.Open(n.o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(&volstate.Record{Driver: csiName, FlexDriver: "example.com/disk", Handle: "another", Name: "pv2", Attach: volstate.Done}); err != nil {
		t.Fatal(err)
	}
	c.nodes[0].Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/" + csiName + "^migrated"}
	n.o.Cluster, n.o.NodeName = c, "node-1"
	r := n.run()
	r.Findings = found(r, "attachment-without-record")
	want(t, r, "", "attachment-without-record lost")
	wantText(t, r, "no pod of the node has the volume")
}

func TestObjects(t *testing.T) {
	n := newNode(t)
	n.configure("attach: None")
	c := newCluster()
	look := func() *doctor.Report {
		return c.look(t, func(o *doctor.Options) { o.Config, o.NodeName = n.o.Config, "node-1" })
	}
	want(t, look(), "", "csidriver-missing "+csiName, "csinode-driver-missing "+csiName)
	limit := int32(2)
	c.drivers = []storagev1.CSIDriver{csiDriver(csiName, true)}
	c.onNode = []storagev1.CSINodeDriver{{Name: csiName, NodeID: "n1", Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}
	want(t, look(), "", "csidriver-attach-differs "+csiName)
	for _, name := range []string{"a", "b"} {
		c.attachments = append(c.attachments, storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{Attacher: csiName, NodeName: "node-1"},
		})
	}
	want(t, look(), "", "csidriver-attach-differs "+csiName, "attachment-limit node-1")
}

// TestDriverThatPanics: ceph-csi ends at a VolumeAttachment of the bridge, so the error of
// other drivers is right for it, and the other way round.
func TestDriverThatPanics(t *testing.T) {
	for _, name := range []string{"rbd.csi.ceph.com", "rook-ceph.rbd.csi.ceph.com"} {
		for attach, found := range map[string][]string{"None": nil, "Auto": {"csidriver-panics " + name}, "VolumeAttachment": {"csidriver-panics " + name}} {
			n := newNode(t)
			n.configureDriver(name, "attach: "+attach)
			c := newCluster()
			c.drivers = []storagev1.CSIDriver{csiDriver(name, true)}
			c.onNode = []storagev1.CSINodeDriver{{Name: name, NodeID: "n1"}}
			look := func() *doctor.Report {
				return c.look(t, func(o *doctor.Options) { o.Config, o.NodeName = n.o.Config, "node-1" })
			}
			want(t, look(), "", found...)
			c.drivers = []storagev1.CSIDriver{csiDriver(name, false)}
			want(t, look(), "")
		}
	}
}

// TestInline: a driver that the configuration does not open to inline volumes needs a
// policy that says so.
func TestInline(t *testing.T) {
	n := newNode(t)
	c := newCluster()
	c.drivers, c.onNode = []storagev1.CSIDriver{csiDriver(csiName, false)}, []storagev1.CSINodeDriver{{Name: csiName, NodeID: "n1"}}
	look := func(inline string) *doctor.Report {
		config := "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: example.com/disk\n  csiDriver: " + csiName + "\n  inline: " + inline + "\n"
		if err := os.WriteFile(n.o.Config, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		return c.look(t, func(o *doctor.Options) { o.Config, o.NodeName = n.o.Config, "node-1" })
	}
	want(t, look("false"), "")
	c.open = true
	want(t, look("false"), "", "inline-volumes-open example.com/disk")
	want(t, look("true"), "")
}

// TestPolicies: a token that may create VolumeAttachments wants policies that confine it,
// and let it do its work.
func TestPolicies(t *testing.T) {
	const own = "system:serviceaccount:elsewhere:flex2csi-node"
	const node, controller = "system:serviceaccount:flex2csi:flex2csi-node", "system:serviceaccount:flex2csi:flex2csi-controller"
	confined := func(a attempt) string {
		if a.Unmarked || a.Driver != csiName {
			return "a policy denies it"
		}
		return ""
	}
	for name, test := range map[string]struct {
		user    string
		options string
		denies  func(attempt) string
		want    []string
	}{
		"confined":            {user: own, denies: confined},
		"no policy":           {user: own, denies: func(attempt) string { return "" }, want: []string{"attachments-open " + own, "attachment-drivers-open " + own}},
		"any driver":          {user: own, denies: func(a attempt) string { return map[bool]string{true: "denied"}[a.Unmarked] }, want: []string{"attachment-drivers-open " + own}},
		"only the drivers":    {user: own, denies: func(a attempt) string { return map[bool]string{true: "denied"}[a.Driver != csiName] }, want: []string{"attachments-open " + own}},
		"no configuration":    {user: own, denies: func(attempt) string { return "no params found" }, want: []string{"attachment-denied " + csiName}},
		"nothing is attached": {user: own, options: "  attach: None\n", denies: func(attempt) string { return "" }},
		"no right":            {user: own},
		"a person, no policy": {user: "eve", denies: func(attempt) string { return "" }, want: []string{"attachments-open " + node, "attachment-drivers-open " + node, "attachments-open " + controller, "attachment-drivers-open " + controller}},
		"a person":            {user: "eve", denies: confined},
		"one account, by name": {user: "eve", denies: func(a attempt) string {
			return map[bool]string{true: confined(a)}[a.As.Username == node && a.By == "node" && a.As.Extra["authentication.kubernetes.io/node-name"][0] == "node-1"]
		}, want: []string{"attachments-open " + controller, "attachment-drivers-open " + controller}},
		"another pod is no account of flex2csi": {user: "system:serviceaccount:default:app", denies: func(a attempt) string {
			return map[bool]string{true: confined(a)}[a.As.Username != ""]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			c.user, c.denies = test.user, test.denies
			c.drivers = []storagev1.CSIDriver{csiDriver(csiName, test.options == "")}
			c.onNode = []storagev1.CSINodeDriver{{Name: csiName, NodeID: "n1"}}
			config := filepath.Join(t.TempDir(), "config.yaml")
			text := "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: example.com/disk\n  csiDriver: " + csiName + "\n" + test.options
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := c.look(t, func(o *doctor.Options) { o.Config, o.NodeName = config, "node-1" })
			want(t, r, "", test.want...)
			if test.denies == nil {
				wantText(t, r, own+" may create no VolumeAttachments")
			}
		})
	}
}

// TestRelease: doctor says what an old API server lacks of what tested ones have.
func TestRelease(t *testing.T) {
	for version, lacks := range map[string]int{"v1.24.17+k3s1": 4, "v1.29.1": 3, "v1.30.0": 0, "v1.36.3": 0, "unknown": 0} {
		c := newCluster()
		c.version, c.nodes = version, nil
		var evidence []string
		for _, f := range found(c.look(t, nil), "kubernetes-old") {
			evidence = append(evidence, f.Evidence...)
		}
		if len(evidence) != lacks {
			t.Errorf("%s lacks %q, want %d", version, evidence, lacks)
		}
	}
}

// TestOwnNode: the token of a daemon may not list nodes. Attachments of other nodes are
// not taken for those of nodes that are gone.
func TestOwnNode(t *testing.T) {
	c := newCluster()
	c.ownOnly = true
	for _, node := range []string{"node-1", "node-2"} {
		c.attachments = append(c.attachments, attachedAt("on-"+node, node, "node", metav1.Now()))
	}
	r := c.look(t, func(o *doctor.Options) { o.NodeName = "node-1" })
	want(t, r, "")
	if got := text(t, r); strings.Contains(got, "nodes is forbidden") || !strings.Contains(got, "1 VolumeAttachment of flex2csi checked, of 2") {
		t.Error(got)
	}
	if got := text(t, c.look(t, nil)); !strings.Contains(got, "nodes is forbidden") {
		t.Errorf("where no node is named: %s", got)
	}
}

// TestClusterFails: what cannot be asked is said, and nothing is made up of it.
func TestClusterFails(t *testing.T) {
	c := newCluster()
	c.err = errors.New("etcdserver: request timed out")
	r := c.look(t, nil)
	want(t, r, "", "api-unreachable API server")
	if len(r.Skipped) < 3 {
		t.Errorf("only %d things were skipped:\n%s", len(r.Skipped), text(t, r))
	}
}

// TestClusterAway: one message is enough, with the server and the cause. doctor tries nothing
// again, as the daemon does.
func TestClusterAway(t *testing.T) {
	c := newCluster()
	c.err = flex.Errorf(flex.CodeUnavailable, "ask: %w; this is tried again", &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/version", Err: errors.New("connect: connection refused")})
	r := c.look(t, func(o *doctor.Options) { o.Server = "10.0.0.1:6443" })
	want(t, r, "", "api-unreachable API server")
	got := text(t, r)
	if !strings.Contains(got, "the API server 10.0.0.1:6443 does not answer: connect: connection refused") || strings.Contains(got, "again") {
		t.Error(got)
	}
	if len(r.Skipped) != 1 {
		t.Errorf("%d things were skipped:\n%s", len(r.Skipped), got)
	}
}

// TestHangs: an API server that hangs, with a client that does not care for
// deadlines, holds up neither the end nor what the other checks find.
func TestHangs(t *testing.T) {
	n := newNode(t)
	n.write(n.PluginDir+"/nodeagent~uds/README", "", 0o644)
	c := newCluster()
	c.hang = make(chan struct{})
	defer close(c.hang)
	n.o.Cluster, n.o.Timeout, n.o.NodeName = c, time.Second, "node-1"
	start := time.Now()
	r := n.run()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(found(r, "driver-executable-missing")) != 1 {
		t.Errorf("the broken driver was not found:\n%s", text(t, r))
	}
	for _, check := range []string{"cluster", "nodes", "attachments"} {
		hung := false
		for _, f := range found(r, "check-hangs") {
			hung = hung || f.Subject == check
		}
		if !hung {
			t.Errorf("nothing says that %s hangs:\n%s", check, text(t, r))
		}
	}
}

// TestInstalledConfig: on a workstation the configuration is that of the daemons.
func TestInstalledConfig(t *testing.T) {
	const config = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers: [{flexDriver: example.com/disk, csiDriver: disk.csi.example.com}]\n"
	for answer, wants := range map[string]string{
		config: "there is no CSIDriver object disk.csi.example.com",
		"":     "the configuration is not known: there is no DaemonSet",
	} {
		r := newCluster().look(t, func(o *doctor.Options) {
			o.InstalledConfig = func(context.Context) (string, error) {
				if answer == "" {
					return "", errors.New("there is no DaemonSet")
				}
				return answer, nil
			}
		})
		wantText(t, r, wants)
	}
}
