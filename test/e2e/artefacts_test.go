package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/node"
)

// keepArtefacts writes down what one wants to see of a scenario that failed. What
// cannot be had is no reason to keep less.
func (t *T) keepArtefacts() {
	dir := filepath.Join(t.dir, strings.TrimPrefix(t.Namespace, "e2e-"))
	t.Logf("what there was is in %s", dir)
	for name, get := range map[string]func() (string, error){
		"objects.yaml":    t.objects,
		"events.txt":      func() (string, error) { return t.eventsOf(""), nil },
		"mountinfo":       func() (string, error) { return fileText("/proc/self/mountinfo") },
		"status.json":     func() (string, error) { return t.flex2csi("status", "-o", "json") },
		"doctor.txt":      func() (string, error) { return t.flex2csi("doctor", "--kubeconfig", node.Kubeconfig) },
		"loops.txt":       t.loops,
		"driver.calls":    t.callsText,
		"attachments.txt": func() (string, error) { return t.kubectl("get", "volumeattachments", "-o", "yaml") },
	} {
		text, err := get()
		if err != nil {
			text += "\n# " + err.Error() + "\n"
		}
		t.check(writeFile(filepath.Join(dir, name), text))
	}
	for _, namespace := range []string{t.Namespace, installed, "csi"} {
		t.check(t.keepLogs(filepath.Join(dir, "logs"), namespace))
	}
	t.check(t.keepPartLogs(filepath.Join(dir, "node")))
}

func (t *T) objects() (string, error) {
	mine, err := t.kubectl("get", "pods,pvc,secrets,configmaps", "-n", t.Namespace, "-o", "yaml")
	all, errAll := t.kubectl("get", "pv,csidrivers,csinodes,nodes", "-o", "yaml")
	return mine + "---\n" + all, errors.Join(err, errAll)
}

func (t *T) loops() (string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var text strings.Builder
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil {
			fmt.Fprintf(&text, "%s %s", strings.Split(file, "/")[3], backing)
		}
	}
	return text.String(), err
}

func (t *T) callsText() (string, error) {
	var text strings.Builder
	for _, v := range t.bridged() {
		list, err := v.calls()
		if err != nil {
			return text.String(), err
		}
		for i := range list {
			fmt.Fprintf(&text, "%+v\n", list[i])
		}
	}
	return text.String(), nil
}

// keepLogs keeps what the containers of a namespace said, also before they were
// restarted.
func (t *T) keepLogs(dir, namespace string) error {
	pods, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			base := filepath.Join(dir, p.Name+"."+s.Name)
			errs = append(errs, t.keepLog(base+".log", p, s.Name, false))
			if s.RestartCount > 0 {
				errs = append(errs, t.keepLog(base+".before.log", p, s.Name, true))
			}
		}
	}
	return errors.Join(errs...)
}

func (t *T) keepLog(file string, pod *corev1.Pod, container string, previous bool) error {
	stream, err := t.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, Previous: previous}).Stream(t.ctx())
	if err != nil {
		return writeFile(file, err.Error()) // it may never have started
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	return errors.Join(err, writeFile(file, string(text)))
}

// partLogSize is how much of what the parts of the node said is kept.
const partLogSize = 2 << 20

// keepPartLogs keeps the end of what kubelet, containerd and control plane said.
func (t *T) keepPartLogs(dir string) error {
	var errs []error
	for name, file := range t.partLogs() {
		text, err := fileText(file)
		text = text[max(0, len(text)-partLogSize):]
		errs = append(errs, err, writeFile(filepath.Join(dir, name+".log"), text))
	}
	return errors.Join(errs...)
}

func fileText(name string) (string, error) {
	text, err := os.ReadFile(name)
	return string(text), err
}

func writeFile(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
