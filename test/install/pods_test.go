package install

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestPods: what all pods keep to. What is not as everywhere else is in a list
// here.
func TestPods(t *testing.T) {
	for _, o := range overlay(t, "kubeadm", "attach", "monitoring") {
		if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
			continue
		}
		t.Run(o.GetName(), func(t *testing.T) { checkPod(t, o) })
	}
}

func checkPod(t *testing.T, o *unstructured.Unstructured) {
	spec := get[corev1.PodSpec](t, o, "spec.template.spec")
	if spec.HostPID || spec.HostNetwork || spec.HostIPC || spec.ShareProcessNamespace != nil {
		t.Error("it shares namespaces of the host, or its own")
	}
	if spec.PriorityClassName == "" || spec.NodeSelector["kubernetes.io/os"] != "linux" || len(spec.Tolerations) == 0 {
		t.Errorf("it has the priority %q, the nodes %v, the tolerations %v", spec.PriorityClassName, spec.NodeSelector, spec.Tolerations)
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		name := o.GetName() + "/" + c.Name
		checkSecurity(t, name, c.SecurityContext, spec.SecurityContext)
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s lacks resources: %v", name, c.Resources)
		}
		if !strings.Contains(c.Image, ":") || c.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("%s: image %s, %s", name, c.Image, c.ImagePullPolicy)
		}
		for _, mount := range c.VolumeMounts {
			wanted := corev1.MountPropagationNone
			if mount.Name == "host" || mount.Name == "plugin-dir" && c.Name != "controller" {
				wanted = corev1.MountPropagationHostToContainer
			}
			if name == "flex2csi-node/serve" && mount.Name == "kubelet-dir" {
				wanted = corev1.MountPropagationBidirectional
			}
			if got := mount.MountPropagation; got == nil && wanted != corev1.MountPropagationNone || got != nil && *got != wanted {
				t.Errorf("%s: %s is mounted with propagation %v, want %s", name, mount.Name, got, wanted)
			}
		}
		if strings.Contains(c.Image, "flex2csi") && name != "flex2csi-node/install" && (c.ReadinessProbe == nil || c.LivenessProbe == nil) {
			t.Errorf("%s lacks probes", name)
		}
	}
}

// checkSecurity: root are only those that cannot do without, privileged is one.
func checkSecurity(t *testing.T, name string, c *corev1.SecurityContext, pod *corev1.PodSecurityContext) {
	t.Helper()
	if c == nil || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Fatalf("%s can write to its image: %v", name, c)
	}
	if c.Privileged != nil && *c.Privileged {
		if name != "flex2csi-node/serve" {
			t.Errorf("%s is privileged", name)
		}
		return
	}
	if c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s can get at more rights: %v", name, c)
	}
	if len(c.Capabilities.Add) > 0 && name != "flex2csi-node/install" {
		t.Errorf("%s has %v", name, c.Capabilities.Add)
	}
	if c.SeccompProfile == nil && (pod == nil || pod.SeccompProfile == nil) {
		t.Errorf("%s may make any system call", name)
	}
	user := c.RunAsUser
	if user == nil && pod != nil {
		user = pod.RunAsUser
	}
	root := name == "flex2csi-node/install" || name == "flex2csi-attach/controller"
	if user == nil || (*user == 0) != root {
		t.Errorf("%s runs as %v", name, user)
	}
}

// TestArguments: each flag in the manifests is one of the command, as its help
// has it.
func TestArguments(t *testing.T) {
	checked := 0
	for _, o := range overlay(t, "k0s", "attach") {
		if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
			continue
		}
		spec := get[corev1.PodSpec](t, o, "spec.template.spec")
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			lines := [][]string{c.Args}
			for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if p != nil {
					lines = append(lines, p.Exec.Command[1:])
				}
			}
			for _, args := range lines {
				checked += checkArguments(t, args)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d flags were looked at", checked)
	}
}

// helpOf returns what flex2csi COMMAND --help prints.
func helpOf(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "-C", "../..", "run", "./cmd/flex2csi", command, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("flex2csi %s --help: %v\n%s", command, err, out)
	}
	return string(out)
}

func checkArguments(t *testing.T, args []string) (checked int) {
	t.Helper()
	help := helpOf(t, args[0])
	for _, arg := range args[1:] {
		flag, _, _ := strings.Cut(arg, "=")
		if !regexp.MustCompile("(?m)^  (-., |    )" + flag + "[ [=]").MatchString(help) {
			t.Errorf("flex2csi %s has no flag %s", args[0], flag)
		}
		checked++
	}
	return checked
}
