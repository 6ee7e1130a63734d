package migrate_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testAdmission: a policy that goes by names is seen, too, though the name is
// taken while the old volume is there.
func testAdmission(w *world) {
	w.disk("forbidden")
	w.disk("allowed")
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-forbidden"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "object.metadata.name != 'forbidden'", Message: "not this one"}},
		},
	}
	api := w.Admin().AdmissionregistrationV1()
	_, err := api.ValidatingAdmissionPolicies().Create(w.t.Context(), policy, metav1.CreateOptions{})
	w.check(err)
	_, err = api.ValidatingAdmissionPolicyBindings().Create(w.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-forbidden"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-forbidden", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	w.check(err)
	w.t.Cleanup(func() {
		for _, err := range []error{
			api.ValidatingAdmissionPolicyBindings().Delete(w.t.Context(), "no-forbidden", metav1.DeleteOptions{}),
		} {
			if err != nil {
				w.t.Log(err)
			}
		}
	})
	testenv.Eventually(w.t, "the policy holds", func() bool { return w.one("forbidden").Method == migrate.No })
	says(w.t, w.one("forbidden"), migrate.No, "dry-run", migrate.Fails, "not this one")
	says(w.t, w.one("allowed"), migrate.Live, "dry-run", migrate.OK, "")
}

func testDecisions(w *world) {
	w.disk("owned", func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{
			"argocd.argoproj.io/tracking-id": "shop:/PersistentVolume:default/owned", "pv.kubernetes.io/provisioned-by": "old.example.com",
			"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/note": "stays",
		}
		pv.Labels = map[string]string{"topology.kubernetes.io/zone": "a"}
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		pv.Spec.FlexVolume.ReadOnly = false
	})
	v := w.one("owned")
	says(w.t, v, migrate.Live, "owners", migrate.Decide, "Argo CD (argocd.argoproj.io/tracking-id=shop:/PersistentVolume:default/owned)")
	says(w.t, v, migrate.Live, "owners", migrate.Note, "kubectl apply")
	says(w.t, v, migrate.Live, "reclaim-policy", migrate.Decide, "Delete, which was done by old.example.com")
	pv := replacement(w.t, v)
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.Labels["topology.kubernetes.io/zone"] != "a" || pv.Annotations["example.com/note"] != "stays" ||
		pv.Annotations["pv.kubernetes.io/provisioned-by"] != "" || pv.Annotations["kubectl.kubernetes.io/last-applied-configuration"] != "" || pv.Labels[migrate.MigratedLabel] != "true" {
		w.t.Errorf("%+v", pv)
	}
	w.FlexVolume("no-object", "example.com/share", "", map[string]string{"share": "a"})
	w.check(w.Admin().StorageV1().CSIDrivers().Delete(w.t.Context(), "share.csi.example.com", metav1.DeleteOptions{}))
	v = w.one("no-object")
	w.CSIDriver("share.csi.example.com", storagev1.CSIDriverSpec{AttachRequired: new(bool), SELinuxMount: new(true)})
	says(w.t, v, migrate.No, "csi-driver", migrate.Decide, "there is no CSIDriver object share.csi.example.com")
	says(w.t, v, migrate.No, "secrets", migrate.Fails, "and the volume has none")
	says(w.t, w.one("no-object"), migrate.No, "csi-driver", migrate.Note, "seLinuxMount")
}

// replacement is that of a plan as the API's own types read it.
func replacement(t *testing.T, v *migrate.PlannedVolume) *corev1.PersistentVolume {
	t.Helper()
	data, err := v.Replacement.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var pv corev1.PersistentVolume
	if err := json.Unmarshal(data, &pv); err != nil {
		t.Fatal(err)
	}
	return &pv
}

// testSecrets: what has to be made of a Secret is proposed, and nothing of it
// shown; the command does what it says.
func testSecrets(w *world) {
	secrets := w.Admin().CoreV1().Secrets("default")
	_, err := secrets.Create(w.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "creds"}, Type: "example.com/share",
		StringData: map[string]string{"username": "user-not-to-be-seen", "password": "password-not-to-be-seen"},
	}, metav1.CreateOptions{})
	w.check(err)
	w.FlexVolume("share", "example.com/share", "", map[string]string{"share": "a", "opts": "vers=3.0,ro"})
	w.check(w.Admin().CoreV1().PersistentVolumes().Delete(w.t.Context(), "share", metav1.DeleteOptions{}))
	w.PersistentVolume("share2", corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{
		Driver: "example.com/share", Options: map[string]string{"share": "b", "opts": "vers=3.0,ro"}, SecretRef: &corev1.SecretReference{Name: "creds"},
	}}, corev1.ReadWriteMany)
	plan := w.plan(migrate.Selection{Names: []string{"share2"}})
	text, err := report.JSON(plan)
	w.check(err)
	if strings.Contains(string(text), "not-to-be-seen") || strings.Contains(string(text), "bm90LXRvLWJlLXNlZW") {
		w.t.Errorf("the plan shows a secret:\n%s", text)
	}
	v := plan.Volumes[0]
	says(w.t, v, migrate.Live, "secrets", migrate.Decide, "Secret default/creds-csi (nodeStageSecretRef) is not there yet")
	pv := replacement(w.t, v)
	if ref := pv.Spec.CSI.NodeStageSecretRef; ref == nil || ref.Name != "creds-csi" || ref.Namespace != "default" || !slices.Equal(pv.Spec.MountOptions, []string{"vers=3.0", "ro"}) {
		w.t.Errorf("%+v", pv.Spec)
	}
	made := carryOut(w.t, w.Plane, v.Secrets[0].Command)
	if string(made.Data["userName"]) != "user-not-to-be-seen" || string(made.Data["userPassword"]) != "password-not-to-be-seen" || len(made.Data) != 2 || made.Type != corev1.SecretTypeOpaque {
		w.t.Errorf("%v", made.Data)
	}
	says(w.t, w.one("share2"), migrate.Live, "secrets", migrate.OK, `Secret default/creds-csi (nodeStageSecretRef) has the keys ["userName" "userPassword"]`)

	w.FlexVolume("file", "example.com/file", "", map[string]string{"volumeID": "file"})
	says(w.t, w.one("file"), migrate.No, "secrets", migrate.Fails, "is the file /etc/secret on each node")
	p := w.planner(w.cluster(controlplane.Admin))
	p.Secrets = map[string]csivol.SecretRef{"example.com/file:nodePublish": {Namespace: "default", Name: "creds"}}
	plan, err = p.Plan(w.t.Context(), &migrate.Selection{Names: []string{"file"}})
	w.check(err)
	says(w.t, plan.Volumes[0], migrate.Live, "secrets", migrate.OK, "Secret default/creds (nodePublishSecretRef)")
}

// carryOut does what kubectl would do with the command.
func carryOut(t *testing.T, p *controlplane.Plane, command string) *corev1.Secret {
	t.Helper()
	m := regexp.MustCompile(`^kubectl get secret (\S+) -n (\S+) -o go-template='([^']*)' \| kubectl create -f -$`).FindStringSubmatch(command)
	if m == nil {
		t.Fatalf("the command is %s", command)
	}
	secrets := p.Admin().CoreV1().Secrets(m[2])
	old, err := secrets.Get(t.Context(), m[1], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := template.Must(template.New("").Parse(m[3])).Execute(&out, object); err != nil {
		t.Fatal(err)
	}
	var made corev1.Secret
	if err := json.Unmarshal(out.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	created, err := p.Admin().CoreV1().Secrets(made.Namespace).Create(t.Context(), &made, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func testSelection(w *world) {
	w.Namespace("shop")
	w.disk("by-label", func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"tier": "db"} })
	_, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Patch(w.t.Context(), "by-label", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"x"}}}`), metav1.PatchOptions{})
	w.check(err)
	for _, s := range []migrate.Selection{
		{Selector: "tier=db"},
		{ClaimSelector: "app in (x,y)"},
		{Claims: []string{"default/by-label"}},
		{Names: []string{"by-label"}},
		{Drivers: []string{flexDriver}, Namespaces: []string{"default"}, Selector: "tier"},
	} {
		plan := w.plan(s)
		if len(plan.Volumes) != 1 || plan.Volumes[0].Name != "by-label" {
			w.t.Errorf("%+v: %d volumes", s, len(plan.Volumes))
		}
	}
	for _, s := range []migrate.Selection{{Namespaces: []string{"shop"}}, {Names: []string{"missing"}}, {Claims: []string{"shop/missing"}}} {
		if _, err := w.planner(w.cluster(controlplane.Admin)).Plan(w.t.Context(), &s); err == nil {
			w.t.Errorf("%+v selects something", s)
		}
	}
	all := w.plan(migrate.Selection{All: true})
	if len(all.Volumes) < 10 || slices.ContainsFunc(all.Volumes, func(v *migrate.PlannedVolume) bool { return v.Name == "taker" }) {
		w.t.Errorf("%d volumes", len(all.Volumes))
	}
}

func testRelated(w *world) {
	w.Namespace("related")
	_, err := w.Admin().StorageV1().StorageClasses().Create(w.t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "flex"}, Provisioner: "old.example.com", Parameters: map[string]string{"pool": "a"}, AllowVolumeExpansion: new(true),
	}, metav1.CreateOptions{})
	w.check(err)
	w.Namespace("default")
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: new("flex"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	labels := map[string]string{"app": "db"}
	_, err = w.Admin().AppsV1().StatefulSets("default").Create(w.t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	w.disk("of-class", func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "flex" })
	_, err = w.Admin().CoreV1().Pods("default").Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "inline"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{
				Driver: flexDriver, FSType: "ext4", Options: map[string]string{"volumeID": "vol-inline"},
			}}}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	plan := w.plan(migrate.Selection{Names: []string{"of-class"}})
	if len(plan.Related) != 3 {
		w.t.Fatalf("%+v", plan.Related)
	}
	text, err := report.YAML(plan)
	w.check(err)
	for _, want := range []string{
		"kind: StorageClass", "name: flex", "provisioner old.example.com", "flex2csi migrate classes flex",
		"name: default/db, claim template data",
		"name: default/Pod/inline, volume scratch", "volumeHandle: vol-inline",
	} {
		if !strings.Contains(string(text), want) {
			w.t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// testReplace does by hand what the steps say, with the replacement of the plan:
// the claim is bound to it, and back to the volume that its annotation has.
func testReplace(w *world) {
	w.disk("replaced")
	before, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(w.t.Context(), "replaced", metav1.GetOptions{})
	w.check(err)
	v := w.one("replaced")
	w.replace(replacement(w.t, v), before.UID)
	says(w.t, w.one("replaced"), migrate.No, "flex-volume", migrate.Fails, "it has been migrated already: it was a FlexVolume of "+flexDriver)
	now, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), "replaced", metav1.GetOptions{})
	w.check(err)
	var old corev1.PersistentVolume
	w.check(json.Unmarshal([]byte(now.Annotations[migrate.OriginalAnnotation]), &old))
	w.replace(&old, before.UID)
	says(w.t, w.one("replaced"), migrate.Live, "claim", migrate.OK, "is Bound to it")
}

func (w *world) replace(with *corev1.PersistentVolume, claim types.UID) {
	w.t.Helper()
	volumes := w.Admin().CoreV1().PersistentVolumes()
	w.check(volumes.Delete(w.t.Context(), with.Name, metav1.DeleteOptions{}))
	_, err := volumes.Patch(w.t.Context(), with.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
	_, err = volumes.Create(w.t.Context(), with, metav1.CreateOptions{})
	w.check(err)
	// The volume controller looks at a claim when that changes, and else every 15 s
	// (pkg/controller/volume/persistentvolume/pv_controller_base.go, Kubernetes
	// v1.37.1): a volume that appears is no reason.
	begun, nudge := time.Now(), []byte(`{"metadata":{"annotations":{"example.com/look":"`+time.Now().String()+`"}}}`)
	_, err = w.Admin().CoreV1().PersistentVolumeClaims("default").Patch(w.t.Context(), with.Name, types.MergePatchType, nudge, metav1.PatchOptions{})
	w.check(err)
	defer func() { w.t.Logf("%s was bound after %s", with.Name, time.Since(begun).Round(time.Millisecond)) }()
	testenv.Eventually(w.t, "claim "+with.Name+" is bound", func() bool {
		c, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(w.t.Context(), with.Name, metav1.GetOptions{})
		pv, pvErr := volumes.Get(w.t.Context(), with.Name, metav1.GetOptions{})
		return err == nil && pvErr == nil && c.UID == claim && c.Status.Phase == corev1.ClaimBound && pv.Status.Phase == corev1.VolumeBound
	})
}

// testInstalledConfig: without --config it is that of the DaemonSet.
func testInstalledConfig(w *world) {
	c := w.cluster(controlplane.Admin)
	if _, _, err := migrate.InstalledConfig(w.t.Context(), c, migrate.Namespace); err == nil || !strings.Contains(err.Error(), "there is no DaemonSet flex2csi/flex2csi-node: give the configuration with --config") {
		w.t.Errorf("%v", err)
	}
	w.daemonSet("../../../install/base/node.yaml")
	_, err := w.Admin().CoreV1().ConfigMaps(migrate.Namespace).Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "flex2csi-config"}, Data: map[string]string{"config.yaml": configuration},
	}, metav1.CreateOptions{})
	w.check(err)
	text, from, err := migrate.InstalledConfig(w.t.Context(), c, migrate.Namespace)
	if err != nil || text != configuration || from != "ConfigMap flex2csi/flex2csi-config" {
		w.t.Errorf("%s %v\n%s", from, err, text)
	}
}

// daemonSet makes that of a manifest, without its pods' privileges, which this API
// server forbids.
func (w *world) daemonSet(file string) {
	w.t.Helper()
	text, err := os.ReadFile(file)
	w.check(err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.DaemonSet
		w.check(yaml.Unmarshal([]byte(document), &set))
		if set.Kind != "DaemonSet" {
			continue
		}
		for i := range set.Spec.Template.Spec.Containers {
			set.Spec.Template.Spec.Containers[i].SecurityContext, set.Spec.Template.Spec.Containers[i].VolumeMounts = nil, nil
		}
		_, err = w.Admin().AppsV1().DaemonSets(migrate.Namespace).Create(w.t.Context(), &set, metav1.CreateOptions{})
		w.check(err)
		return
	}
	w.t.Fatalf("%s has no DaemonSet", file)
}

// testCommand runs the real thing, and sees that it has changed nothing.
func testCommand(w *world) {
	flex2csi := filepath.Join(os.Getenv("FLEX_PROGRAMS"), "flex2csi")
	proxy := w.Proxy()
	before := w.all()
	run := func(want int, args ...string) string {
		w.t.Helper()
		command := exec.CommandContext(w.t.Context(), flex2csi, append([]string{"migrate", "plan", "--kubeconfig", proxy.Kubeconfig(controlplane.Admin)}, args...)...)
		out, err := command.CombinedOutput()
		if command.ProcessState.ExitCode() != want {
			w.t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	dir := filepath.Join(w.t.TempDir(), "plan")
	out := run(0, "live", "restart", "-o", "wide", "--output-dir", dir)
	for _, want := range []string{"default/live", "after a pod restart", "2 volumes: 1 live, 1 after a pod restart, 0 offline, 0 not.", "\nNothing was changed.", "ConfigMap flex2csi/flex2csi-config"} {
		if !strings.Contains(out, want) {
			w.t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, file := range []string{"plan.yaml", "live.old.json", "live.old.yaml", "live.csi.yaml", "restart.csi.yaml"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 {
			w.t.Errorf("%s: %v %v", file, info, err)
		}
	}
	if out := run(1, "live", "--output-dir", dir); !strings.Contains(out, "is not empty") {
		w.t.Error(out)
	}
	var plan migrate.Plan
	out = run(0, "live", "-o", "json")
	if _, document, _ := strings.Cut(out, "{"); json.Unmarshal([]byte("{"+document), &plan) != nil || len(plan.Volumes) != 1 {
		w.t.Error(out)
	}
	run(1, "missing")
	run(2)
	if after := w.all(); after != before {
		w.t.Errorf("something was changed:\n%s\n%s", before, after)
	}
	for _, request := range proxy.Trace() {
		if request.Changes() {
			w.t.Errorf("asked for %s", request)
		}
	}
}

// all are the volumes and claims with their versions.
func (w *world) all() string {
	w.t.Helper()
	var b strings.Builder
	volumes, err := w.Admin().CoreV1().PersistentVolumes().List(w.t.Context(), metav1.ListOptions{})
	w.check(err)
	for _, o := range volumes.Items {
		b.WriteString(o.Name + " " + o.ResourceVersion + "\n")
	}
	claims, err := w.Admin().CoreV1().PersistentVolumeClaims("").List(w.t.Context(), metav1.ListOptions{})
	w.check(err)
	for _, o := range claims.Items {
		b.WriteString(o.Name + " " + o.ResourceVersion + "\n")
	}
	return b.String()
}
