package install

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/test/install/render"
)

// TestChartLint: helm lint --strict finds nothing, not even something to recommend.
func TestChartLint(t *testing.T) {
	for name, v := range map[string]values{"no values": {}, "an example": render.Example(nil), "everything": changed(t, nil)} {
		for _, message := range lint.RunAll(chart, v, "flex2csi").Messages {
			t.Errorf("with %s: %v", name, message)
		}
	}
}

// A value that is misspelt must not be taken for one that is left out.
func TestChartRefuses(t *testing.T) {
	for name, v := range map[string]values{
		"another distribution":  {"distribution": "windows"},
		"no drivers":            {"drivers": []any{}},
		"a driver without CSI":  {"drivers": []any{values{"flexDriver": "a/b"}}},
		"another version":       {"apiVersion": "flex2csi.io/v1"},
		"a misspelt field":      {"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c", "inlin": true}}},
		"one inside of it":      {"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c", "volume": values{"handel": "options.id"}}}},
		"one deep inside of it": {"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c", "secrets": values{"nodeStage": values{"secretRef": values{"name": "a", "namspace": "b"}}}}}},
		"a field's value":       {"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c", "attach": "Maybe"}}},
		"a field's type":        {"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c", "inline": "true"}}},
		"a name that is none":   {"fullnameOverride": "Storage"},
		"an account in CEL":     {"node": values{"serviceAccount": values{"name": "a' || true || '"}}},
		"a driver's name":       {"drivers": []any{values{"flexDriver": "b", "csiDriver": "c"}}},
		"a misspelt value":      {"volumePlugindir": "/a"},
		"a misspelt one inside": {"node": values{"toleration": []any{}}},
		"a relative path":       {"volumePluginDir": "usr/libexec"},
		"a digest":              {"image": values{"digest": "sha256:1"}},
		"an end of CEL":         {"policy": values{"drivers": []any{"a'] || true || ['"}}},
		"attach for no driver":  {"attach": values{"drivers": []any{}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := (render.Release{Namespace: "flex2csi", Values: render.Example(v)}).Objects(chart); err == nil {
				t.Errorf("%v is accepted", v)
			}
		})
	}
}

// all is a release where everything is changed that can be.
func all(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render.Release{Namespace: "elsewhere", Values: values{
		"distribution":     "rke2",
		"volumePluginDir":  "/var/lib/kubelet/volumeplugins/",
		"drivers":          []any{values{"flexDriver": "a/b", "csiDriver": "c.d", "inline": true}},
		"image":            values{"repository": "registry.example/flex2csi", "digest": "sha256:" + strings.Repeat("0", 64), "pullPolicy": "Always"},
		"imagePullSecrets": []any{values{"name": "pull"}},
		"node":             values{"extraArgs": []any{"-v"}, "installArgs": []any{"--log-file=journal"}, "podLabels": values{"pod": "label"}, "podAnnotations": values{"pod": "annotation"}},
		"controller":       values{"replicas": 1, "extraArgs": []any{"-v"}, "podAnnotations": values{"pod": "annotation"}},
		"attach":           values{"enabled": true, "drivers": []any{"a/b"}},
		"rbac": values{
			"nodesAttach": false, "secrets": []any{values{"namespace": "kube-system", "names": []any{"array", "other"}}},
			"serviceAccountTokens": values{"enabled": true, "audiences": []any{"vault"}},
		},
		"policy":  values{"drivers": []any{"e.f"}, "secrets": []any{"kube-system/array"}, "pods": values{"others": []any{"g/h"}}},
		"quota":   false,
		"migrate": values{"enabled": true},
		"metrics": values{"enabled": true, "labels": values{"release": "prometheus"}},
	}}.Objects(chart)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestChartNode(t *testing.T) {
	objects := all(t)
	spec := get[corev1.PodSpec](t, find(t, objects, "DaemonSet", "flex2csi-node"), "spec.template.spec")
	wantArgs := []string{
		"install", "--config=/etc/flex2csi/config.yaml", "--kubelet-dir=/var/lib/kubelet", "--volume-plugin-dir=/var/lib/kubelet/volumeplugins",
		"--distribution=rke2", "--attach=a/b", "--controller-socket=../.controller.sock", "--log-file=journal",
	}
	if got := spec.InitContainers[0].Args; !slices.Equal(got, wantArgs) {
		t.Errorf("install has %q, want %q", got, wantArgs)
	}
	serve := spec.Containers[0]
	if got := serve.Args[len(serve.Args)-1]; got != "-v" {
		t.Errorf("the last argument of serve is %s", got)
	}
	if want := "registry.example/flex2csi@sha256:" + strings.Repeat("0", 64); serve.Image != want || serve.ImagePullPolicy != "Always" || spec.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("the image is %s, %s, %v", serve.Image, serve.ImagePullPolicy, spec.ImagePullSecrets)
	}
	// A mount of it below the kubelet's directory, which is shared with the host,
	// would appear on the host and stay there.
	for _, mount := range serve.VolumeMounts {
		if mount.Name == "plugin-dir" || mount.Name == "host" {
			t.Errorf("serve has %s at %s, and the kubelet's directory around it", mount.Name, mount.MountPath)
		}
	}
	attach := get[corev1.PodSpec](t, find(t, objects, "DaemonSet", "flex2csi-attach"), "spec.template.spec")
	if got := attach.Volumes[0].HostPath.Path; got != "/var/lib/kubelet/volumeplugins/" {
		t.Errorf("the controller's socket is in %s", got)
	}
}

// TestChartMetricsAccount: the token of the Secret never expires (security.md, F9).
func TestChartMetricsAccount(t *testing.T) {
	own := values{"name": "prometheus-k8s", "namespace": "monitoring"}
	objects, err := render.Release{Namespace: "elsewhere", Values: render.Example(values{"metrics": values{"enabled": true, "serviceAccount": own}})}.Objects(chart)
	if err != nil {
		t.Fatal(err)
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "prometheus-k8s", Namespace: "monitoring"}}
	if got := get[[]rbacv1.Subject](t, find(t, objects, "ClusterRoleBinding", "flex2csi-metrics"), "subjects"); !slices.Equal(got, want) {
		t.Errorf("bound to %v", got)
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "Secret", "PodMonitor":
			t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
		}
	}
	find(t, objects, "Service", "flex2csi-metrics")
	find(t, objects, "ServiceMonitor", "flex2csi")
	for _, o := range all(t) {
		if o.GetKind() == "ServiceMonitor" {
			t.Error("there is a ServiceMonitor")
		}
	}
	find(t, all(t), "PodMonitor", "flex2csi")
}

func TestChartRights(t *testing.T) {
	objects := all(t)
	for _, rule := range get[[]rbacv1.PolicyRule](t, find(t, objects, "ClusterRole", "flex2csi-node"), "rules") {
		if slices.Contains(rule.Resources, "volumeattachments") && (slices.Contains(rule.Verbs, "create") || slices.Contains(rule.Verbs, "delete")) {
			t.Errorf("nodes may %v VolumeAttachments", rule.Verbs)
		}
		if len(rule.Verbs) == 0 {
			t.Errorf("%v has no verbs left", rule)
		}
		if slices.Contains(rule.Resources, "events") && !slices.Equal(rule.Verbs, []string{"create", "patch"}) {
			t.Errorf("nodes may %v events", rule.Verbs)
		}
	}
	role := find(t, objects, "Role", "flex2csi-node-secrets")
	if rule := get[[]rbacv1.PolicyRule](t, role, "rules")[0]; role.GetNamespace() != "kube-system" || !slices.Equal(rule.ResourceNames, []string{"array", "other"}) {
		t.Errorf("in %s the nodes may %v", role.GetNamespace(), rule)
	}
	for policy, want := range map[string]map[string]string{
		"flex2csi-attachments":        {"secrets": "['kube-system/array']"},
		"flex2csi-attachment-drivers": {"others": "['e.f']"},
		"flex2csi-node-tokens":        {"audiences": "['vault']"},
		"flex2csi-pods":               {"others": "['g/h']"},
	} {
		type variable struct{ Name, Expression string }
		o := find(t, objects, "ValidatingAdmissionPolicy", policy)
		for _, v := range get[[]variable](t, o, "spec.variables") {
			if w, ok := want[v.Name]; ok && v.Expression != w {
				t.Errorf("%s of %s is %s, want %s", v.Name, policy, v.Expression, w)
			}
			delete(want, v.Name)
		}
		if len(want) > 0 {
			t.Errorf("%s has no variables %v", policy, want)
		}
	}
}

// TestChartNamespace: nothing stays behind in the namespace that kustomize has.
func TestChartNamespace(t *testing.T) {
	for _, o := range all(t) {
		if o.GetNamespace() == "flex2csi" {
			t.Errorf("%s %s is in flex2csi", o.GetKind(), o.GetName())
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`(?m)namespace: flex2csi$|serviceaccount:flex2csi:`).Find(text); found != nil {
			t.Errorf("%s %s has %q", o.GetKind(), o.GetName(), found)
		}
	}
}

// TestChartMigrate: what nodes tell is in a namespace of its own, wherever flex2csi
// is, and none of it is there unless it is asked for.
func TestChartMigrate(t *testing.T) {
	objects := all(t)
	find(t, objects, "Namespace", "flex2csi-nodes")
	for _, kind := range []string{"Role", "RoleBinding"} {
		if o := find(t, objects, kind, "flex2csi-node-volumes"); o.GetNamespace() != "flex2csi-nodes" {
			t.Errorf("the %s is in %s", kind, o.GetNamespace())
		}
	}
	binding := find(t, objects, "RoleBinding", "flex2csi-node-volumes")
	if s := get[[]rbacv1.Subject](t, binding, "subjects"); len(s) != 1 || s[0].Namespace != "elsewhere" {
		t.Errorf("it is for %v", s)
	}
	find(t, objects, "ValidatingAdmissionPolicyBinding", "flex2csi-node-volumes")
	for _, o := range release(t, values{}) {
		if strings.Contains(o.GetName()+o.GetNamespace(), "flex2csi-node-volumes") || o.GetNamespace() == "flex2csi-nodes" {
			t.Errorf("%s %s is there without migrations", o.GetKind(), o.GetName())
		}
	}
}

func TestChartNotes(t *testing.T) {
	for _, test := range []struct {
		values     values
		want, lack string
	}{
		{values{"drivers": []any{values{"flexDriver": "a/b", "csiDriver": "c.d"}}}, "a/b -> c.d", "attach: true needs"},
		{values{"policy": values{"enabled": false}}, "There is no policy", "attach: true needs"},
		{values{"attach": values{"enabled": true}}, "attach: true needs /usr/libexec/kubernetes/kubelet-plugins/volume/exec", "There is no policy"},
	} {
		texts, err := render.Release{Namespace: "flex2csi", Values: render.Example(test.values)}.Texts(chart)
		if err != nil {
			t.Fatal(err)
		}
		notes := texts["flex2csi/templates/NOTES.txt"]
		if !strings.Contains(notes, test.want) || strings.Contains(notes, test.lack) {
			t.Errorf("with %v the notes lack %q or have %q:\n%s", test.values, test.want, test.lack, notes)
		}
	}
}
