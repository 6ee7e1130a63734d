package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/test/install/render"
)

// TestHelmTest: helm test runs doctor with flags that it has, as an account and with a
// configuration that the chart makes, and the pod has no rights on its node.
func TestHelmTest(t *testing.T) {
	r := render.Release{Namespace: "elsewhere", Values: render.Example(values{"image": values{"repository": "registry.example/flex2csi", "tag": "v1"}, "imagePullSecrets": []any{values{"name": "pull"}}})}
	hooks, err := r.Hooks(chart)
	if err != nil {
		t.Fatal(err)
	}
	if len(hooks) != 1 || hooks[0].GetKind() != "Pod" || hooks[0].GetNamespace() != "elsewhere" || hooks[0].GetAnnotations()["helm.sh/hook"] != "test" {
		t.Fatalf("the hooks are %v", hooks)
	}
	objects, err := r.Objects(chart)
	if err != nil {
		t.Fatal(err)
	}
	spec := get[corev1.PodSpec](t, hooks[0], "spec")
	find(t, objects, "ServiceAccount", spec.ServiceAccountName)
	find(t, objects, "ConfigMap", spec.Volumes[0].ConfigMap.Name)
	if len(spec.Volumes) != 1 || len(spec.Containers) != 1 || spec.HostPID || spec.HostNetwork || spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("it has more than one container and the configuration: %+v", spec)
	}
	c := spec.Containers[0]
	checkSecurity(t, "helm test", c.SecurityContext, spec.SecurityContext)
	if c.Image != "registry.example/flex2csi:v1" || spec.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("the image is %s, %v", c.Image, spec.ImagePullSecrets)
	}
	help := helpOf(t, c.Args[0])
	for _, arg := range c.Args[1:] {
		if flag, _, _ := strings.Cut(arg, "="); !strings.Contains(help, flag) {
			t.Errorf("%s has no flag %s", c.Args[0], flag)
		}
	}
}
