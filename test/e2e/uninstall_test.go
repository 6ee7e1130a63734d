package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func uninstall(t *T) {
	// The CSI drivers' own volumes have nothing to do with it.
	others := t.load(t.volume(share(), "native", native))
	w := t.witness(t.volume(disk(), "w-disk"), t.volume(attached(), "w-attached"))
	l := t.load(t.volume(disk(), "disk"), t.volume(share(), "share", inline))
	l.more(1)
	t.wantRefused(w)
	l.more(1) // it lets pods in again
	l.end()
	w.undisturbed()
	t.delete(w.pod)
	t.wait("the last VolumeAttachment to go", t.noAttachments)

	t.Cleanup(func() { t.check(t.install(t.ctx())) }) // for those after this one
	out, err := t.uninstall()
	t.must(withText(err, out))
	for _, dir := range []string{env("E2E_INSTALL", manifests()), tells()} {
		out, err = t.kubectl("delete", "-k", dir, "--wait")
		t.must(withText(err, out))
	}
	t.wantUninstalled()
	others.more(1)

	// The kubelet and kube-controller-manager find the drivers when they come.
	a, b := t.volume(disk(), "again"), t.volume(attached(), "again-attached")
	early := t.create(t.newPod("early", a.at("/a")))
	t.waitEvent(early, "no volume plugin matched")
	t.must(t.install(t.ctx()))
	t.waitReady(early)
	// Pods from before the driver kube-controller-manager looks at every three
	// minutes only (listPodsRetryDuration in pkg/controller/volume/attachdetach,
	// Kubernetes v1.37.1).
	attaching := t.start("attaching", b.at("/b"))
	others.more(1)
	others.end()
	t.delete(early, attaching)
}

// uninstall does what docs/uninstall.md says, in the daemon's pod.
func (t *T) uninstall() (string, error) {
	pod, err := t.podOf(installed, nodeComponent)
	if err != nil {
		return "", err
	}
	return t.exec(installed, pod.Name, "serve", "/flex2csi", "uninstall")
}

// wantRefused tries to uninstall under the volumes of a pod.
func (t *T) wantRefused(w *witness) {
	t.Helper()
	out, err := t.uninstall()
	if err == nil {
		t.Fatalf("uninstalled under pods with volumes: %s", out)
	}
	if said := out + err.Error(); !strings.Contains(said, t.Namespace+"/"+w.pod.Name) {
		t.Errorf("uninstall does not say that pod %s/%s has volumes: %s", t.Namespace, w.pod.Name, said)
	}
	w.look()
}

func (t *T) noAttachments() error {
	list, err := t.client.StorageV1().VolumeAttachments().List(t.ctx(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=flex2csi"})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("there are %d VolumeAttachments of flex2csi", len(list.Items))
	}
	return err
}

// wantUninstalled looks for what uninstalling has left.
func (t *T) wantUninstalled() {
	t.Helper()
	for _, dir := range []string{"/var/lib/flex2csi", "/run/flex2csi"} {
		// The node has the one as a mount of its own, which only it could take away.
		files, err := os.ReadDir(dir)
		if !errors.Is(err, fs.ErrNotExist) && (err != nil || len(files) > 0) {
			t.Errorf("%s is left, with %v: %v", dir, files, err)
		}
	}
	drivers, err := filepath.Glob(filepath.Join(pluginDir, "*"))
	t.must(err)
	for _, dir := range drivers {
		if !strings.HasPrefix(filepath.Base(dir), "example.com~local") { // the backend local's
			t.Errorf("%s is left", dir)
		}
	}
	t.check(t.noAttachments())
	kinds := append([]string{"namespaces", "clusterroles", "clusterrolebindings"}, policyKinds()...)
	out, err := t.kubectl("get", strings.Join(kinds, ","), "--selector", "app.kubernetes.io/part-of=flex2csi", "--output", "name")
	t.must(withText(err, out))
	if out != "" {
		t.Errorf("objects are left:\n%s", out)
	}
}
