package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/test/node"
)

// takeOvers are the way from a vendor's driver to the bridge, and back.
func takeOvers() []scenario {
	return []scenario{{
		"take-over",
		"a vendor's driver in use, which its DaemonSet copies at each start: flex2csi takes its place, sees it come back, and gives the place back, with the same data in each pod",
		takeOver,
	}}
}

// installedScript is a vendor's driver on the node: it mounts the directories of a CSI
// driver by itself, and writes down each call.
const installedScript = `#!/bin/sh
echo "$1 $2" >>%s
ok='{"status":"Success"}'
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
mount)
	pv=$(echo "$3" | sed 's/.*"kubernetes.io.pvOrVolumeName":"\([^"]*\)".*/\1/')
	mkdir -p "$2" && mount --bind "%s/volumes/$pv.d" "$2" >/dev/null 2>&1 && echo "$ok" || echo '{"status":"Failure"}' ;;
unmount) umount "$2" >/dev/null 2>&1; echo "$ok" ;;
*) echo '{"status":"Not supported"}' ;;
esac
`

// An oldDriver is the vendor's, with its installer.
type oldDriver struct {
	t *T
	driver
	script, calls string
}

// oldDriver installs a vendor's driver as its documents would have it. The DaemonSet
// goes when the scenario ends, or before.
func (t *T) oldDriver(d driver) *oldDriver {
	t.Helper()
	dir, err := os.MkdirTemp("", "vendor")
	t.must(err)
	t.after = append(t.after, func() { t.check(os.RemoveAll(dir)) })
	calls := filepath.Join(dir, "calls")
	o := &oldDriver{t, d, fmt.Sprintf(installedScript, calls, d.storage()), calls}
	t.Cleanup(func() { t.check(o.stop()) })
	t.must(o.start())
	o.wantInPlace()
	return o
}

// start creates the DaemonSet. Its pod copies the driver over whatever is there.
func (o *oldDriver) start() error {
	out, err := o.t.kubectl("apply", "--namespace", o.t.Namespace, "-f", o.manifest())
	return withText(err, out)
}

// manifest is a file with the DaemonSet, and the driver.
func (o *oldDriver) manifest() string {
	t := o.t
	t.Helper()
	labels := map[string]string{"app": "vendor"}
	pod := t.newPod("").Spec
	pod.Volumes = []corev1.Volume{
		{Name: "plugins", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: pluginDir}}},
		{Name: "driver", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "vendor"}}}},
	}
	c := &pod.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "plugins", MountPath: pluginDir}, {Name: "driver", MountPath: "/driver"}}
	c.Command[2] = fmt.Sprintf("mkdir -p %[1]s && cp -f /driver/driver %[2]s && chmod 755 %[2]s && ", filepath.Dir(o.executable()), o.executable()) + "{ " + idle + "; }"
	one := intstr.FromInt32(1)
	return t.manifest("vendor.yaml", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "vendor"}, Data: map[string]string{"driver": o.script},
	}, &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: metav1.ObjectMeta{Name: "vendor"},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one}},
			Template:       corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	})
}

// manifest writes objects to a file of that name.
func (t *T) manifest(name string, objects ...any) string {
	t.Helper()
	var all []byte
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		t.must(err)
		all = append(append(all, "---\n"...), text...)
	}
	file := filepath.Join(t.TempDir(), name)
	t.must(os.WriteFile(file, all, 0o600))
	return file
}

// stop deletes the DaemonSet, and waits for its pod.
func (o *oldDriver) stop() error {
	_, err := o.t.kubectl("delete", "daemonset,configmap", "vendor", "--namespace", o.t.Namespace, "--ignore-not-found", "--cascade=foreground", "--wait")
	return err
}

// restart has the installer copy its driver once more.
func (o *oldDriver) restart() {
	o.t.Helper()
	pod, err := o.t.podOf(o.t.Namespace, "app=vendor")
	o.t.must(err)
	o.t.delete(pod)
	o.wantInPlace()
}

// wantInPlace waits until the kubelet finds the vendor's driver.
func (o *oldDriver) wantInPlace() {
	o.t.Helper()
	o.t.wait("the vendor's driver in its place", func() error {
		text, err := fileText(o.executable())
		if err == nil && text != o.script {
			err = errors.New("another program is there")
		}
		return err
	})
}

// wantReplaced wants flexdriver in its place, and the vendor's driver kept.
func (o *oldDriver) wantReplaced() {
	o.t.Helper()
	if text, err := fileText(o.executable()); err != nil || text == o.script {
		o.t.Fatalf("flexdriver is not in the place of the vendor's driver: %v", err)
	}
	if text, err := fileText(o.original()); err != nil || text != o.script {
		o.t.Fatalf("the vendor's driver is not kept: %v", err)
	}
}

// original is where install keeps it.
func (o *oldDriver) original() string {
	return filepath.Join(pluginDir, "."+strings.ReplaceAll(o.flex, "/", "~")+".original")
}

// wantMounted wants the vendor's driver to have mounted a pod's volume, or not.
func (o *oldDriver) wantMounted(v *volume, pod *corev1.Pod, by bool) {
	o.t.Helper()
	o.t.wantMounted(v, pod)
	text, err := fileText(o.calls)
	o.t.must(err)
	if strings.Contains("\n"+text, "\nmount "+v.dir(pod)+"\n") != by {
		o.t.Errorf("pod %s: mounted by the vendor's driver: want %t; its calls:\n%s", pod.Name, by, text)
	}
}

// inDaemon runs flex2csi in the daemon's pod, and returns all that it says.
func (t *T) inDaemon(args ...string) (string, error) {
	t.Helper()
	pod, err := t.podOf(installed, nodeComponent)
	t.must(err)
	out, err := t.exec(installed, pod.Name, "serve", append([]string{"/flex2csi"}, args...)...)
	if err != nil {
		out += err.Error()
	}
	return out, err
}

// removeDaemon deletes the DaemonSet of flex2csi-node, and waits for its pods.
func (t *T) removeDaemon() {
	t.Helper()
	out, err := t.kubectl("delete", "daemonset", "flex2csi-node", "--namespace", installed, "--ignore-not-found", "--cascade=foreground", "--wait")
	t.must(withText(err, out))
}

// wantSaid wants a command to say a text, whether it fails or not.
func (t *T) wantSaid(said, what string) {
	t.Helper()
	if !strings.Contains(said, what) {
		t.Errorf("%q is not in\n%s", what, said)
	}
}

func takeOver(t *T) {
	out, err := t.inDaemon("uninstall")
	t.must(withText(err, out))
	t.removeDaemon()
	t.Cleanup(t.installAgain) // for pods that are left, and the scenarios after this one

	old := t.oldDriver(share())
	v := t.volume(share(), "data")
	first := t.start("first", v.at("/data"))
	t.sh(first, "echo by-vendor > /data/file && sync")
	old.wantMounted(v, first, true)

	t.takePlace(old, first)
	second := t.start("second", v.at("/data"))
	t.wantSh(second, "cat /data/file && echo by-bridge > /data/file && sync", "by-vendor")
	old.wantMounted(v, second, false)
	t.wantCalls(v, map[string]int{"NodePublishVolume": 1})

	t.comesBack(old)
	t.wantSh(second, "cat /data/file", "by-bridge")
	said, err := t.inDaemon("uninstall", "--restore")
	if err == nil {
		t.Fatalf("the place was given back under a volume of the bridge: %s", said)
	}
	t.wantSaid(said, t.Namespace+"/"+second.Name)
	old.wantReplaced()
	t.delete(second)
	t.waitIdle(v)

	said, err = t.inDaemon("uninstall", "--restore")
	t.must(withText(err, said))
	t.wantSaid(said, "put the program that was there before back")
	old.wantInPlace()
	t.removeDaemon()
	third := t.start("third", v.at("/data"))
	t.wantSh(third, "cat /data/file", "by-bridge")
	old.wantMounted(v, third, true)
	t.wantCalls(v, map[string]int{"NodePublishVolume": 1})
	t.delete(third)
	t.must(os.RemoveAll(filepath.Dir(old.executable())))
}

// installAgain installs flex2csi whatever is there, and keeps nothing of a vendor.
func (t *T) installAgain() {
	t.Helper()
	t.removeDaemon()
	t.check(t.install(t.ctx()))
	kept, err := filepath.Glob(filepath.Join(pluginDir, ".*.original"))
	t.check(err)
	for _, file := range kept {
		t.check(os.Remove(file))
	}
}

// takePlace installs over a driver in use, as docs/install.md has it. Its pod ends well.
func (t *T) takePlace(old *oldDriver, pod *corev1.Pod) {
	t.Helper()
	said, _ := t.flex2csi("doctor", "--on=cluster", "--kubeconfig", node.Kubeconfig) // it fails where it finds something
	t.wantSaid(said, "(plugin-dir-daemonset)")
	t.wantSaid(said, "daemonset vendor")
	t.must(t.install(t.ctx()))
	old.wantReplaced()
	t.wantSh(pod, "cat /data/file", "by-vendor")
	t.delete(pod)
	if mounts, err := fileText("/proc/self/mountinfo"); err != nil || strings.Contains(mounts, string(pod.UID)) {
		t.Errorf("mounts of pod %s are left (%v):\n%s", pod.Name, err, mounts)
	}
}

// comesBack: the vendor's installer starts again, which is seen; without it flex2csi is
// installed again.
func (t *T) comesBack(old *oldDriver) {
	t.Helper()
	old.restart()
	said, err := t.inDaemon("ready")
	if err == nil {
		t.Errorf("ready does not see the vendor's driver: %s", said)
	}
	t.wantSaid(said, "another program was put in its place")
	said, _ = t.inDaemon("doctor", "--on=node")
	t.wantSaid(said, "(driver-overwritten)")
	t.wait("the daemon's pod to be not ready", func() error {
		pod, err := t.podOf(installed, nodeComponent)
		if err == nil && notReady(pod) == nil {
			err = errors.New("it is ready")
		}
		return err
	})
	t.must(old.stop())
	out, err := t.kubectl("rollout", "restart", "daemonset/flex2csi-node", "--namespace", installed)
	t.must(withText(err, out))
	t.must(t.rolledOut(t.ctx(), installed))
	old.wantReplaced()
	said, err = t.inDaemon("ready")
	t.must(withText(err, said))
}
