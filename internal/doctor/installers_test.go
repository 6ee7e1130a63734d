package doctor_test

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/doctor"
)

// installer is a DaemonSet with a directory of the node.
func installer(dir string, change ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "vendor"}}
	set.Status.DesiredNumberScheduled = 1
	set.Spec.Template.Spec = corev1.PodSpec{
		Volumes:        []corev1.Volume{{Name: "dir", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}, {Name: "tmp"}},
		InitContainers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "dir", MountPath: "/drivers"}}}},
	}
	for _, f := range change {
		f(set)
	}
	return set
}

// TestInstallers: DaemonSets that can overwrite a driver of the configuration,
// example.com/disk, and those that cannot.
func TestInstallers(t *testing.T) {
	const upstream = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
	for name, tt := range map[string]struct {
		set          *appsv1.DaemonSet
		unconfigured bool
		found        bool
	}{
		"the plugin directory":            {set: installer(upstream), found: true},
		"another distribution's":          {set: installer("/etc/kubernetes/volumeplugins/"), found: true},
		"that of --volume-plugin-dir":     {set: installer("/opt/plugins"), found: true},
		"the driver's own":                {set: installer(upstream + "/example.com~disk"), found: true},
		"inside of it":                    {set: installer(upstream + "/example.com~disk/bin"), found: true},
		"another driver's":                {set: installer(upstream + "/example.com~tape")},
		"another's, and no configuration": {set: installer(upstream + "/example.com~tape"), unconfigured: true, found: true},
		"Calico's":                        {set: installer(upstream + "/nodeagent~uds"), unconfigured: true},
		"above":                           {set: installer("/usr/libexec")},
		"next to it":                      {set: installer(upstream + "utable")},
		"the whole node":                  {set: installer("/")},
		"read-only": {set: installer(upstream, func(s *appsv1.DaemonSet) {
			s.Spec.Template.Spec.InitContainers[0].VolumeMounts[0].ReadOnly = true
		})},
		"not mounted":      {set: installer(upstream, func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.InitContainers = nil })},
		"on no node":       {set: installer(upstream, func(s *appsv1.DaemonSet) { s.Status.DesiredNumberScheduled = 0 })},
		"that of flex2csi": {set: installer(upstream, func(s *appsv1.DaemonSet) { s.Labels = map[string]string{"app.kubernetes.io/part-of": "flex2csi"} })},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			r := c.look(t, func(o *doctor.Options) {
				o.PluginDir = "/opt/plugins"
				if !tt.unconfigured {
					n := &node{t: t, dir: t.TempDir()}
					n.o.Config = n.path("config.yaml")
					n.configure()
					o.Config = n.o.Config
				}
				o.DaemonSets = func(context.Context) ([]*appsv1.DaemonSet, error) { return []*appsv1.DaemonSet{tt.set}, nil }
			})
			if got := len(found(r, "plugin-dir-daemonset")); (got == 1) != tt.found || got > 1 {
				t.Errorf("found %d:\n%s", got, text(t, r))
			}
			if tt.found {
				wantText(t, r, "kubectl -n kube-system delete daemonset vendor", "hostPath "+tt.set.Spec.Template.Spec.Volumes[0].HostPath.Path[:8])
			}
		})
	}
}
