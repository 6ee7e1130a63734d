package e2e

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const busybox = "localhost/busybox:e2e"

// idle is a container that does nothing until it is told to end. As pid 1 it has
// to want to hear of it.
const idle = "trap 'exit 0' TERM; sleep 1000000 & wait"

// A podOption changes a pod before it is made.
type podOption func(*corev1.Pod)

// newPod describes a pod with one container that does nothing.
func (t *T) newPod(name string, options ...podOption) *corev1.Pod {
	seconds := int64(2)
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Containers: []corev1.Container{{
				Name: "main", Image: busybox, ImagePullPolicy: corev1.PullNever,
				Command: []string{"/bin/sh", "-c", idle},
			}},
		},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

// at mounts a volume's claim, or the inline volume, in all containers.
func (v *volume) at(path string, change ...func(*corev1.VolumeMount)) podOption {
	return func(pod *corev1.Pod) {
		known := false
		for _, have := range pod.Spec.Volumes {
			known = known || have.Name == v.name
		}
		if !known {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: v.name, VolumeSource: v.source()})
		}
		m := corev1.VolumeMount{Name: v.name, MountPath: path}
		for _, c := range change {
			c(&m)
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, m)
			}
		}
	}
}

// readOnly makes a claim, or inline volume, one that may not be written to.
func readOnly(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			v.PersistentVolumeClaim.ReadOnly = true
		case v.FlexVolume != nil:
			v.FlexVolume.ReadOnly = true
		}
	}
}

// as runs the pod as a user, with the fsGroup unless that is 0.
func as(user, fsGroup int64) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user}
		if fsGroup != 0 {
			pod.Spec.SecurityContext.FSGroup = &fsGroup
		}
	}
}

// subPath mounts only that part of the volume.
func subPath(name string) func(*corev1.VolumeMount) {
	return func(m *corev1.VolumeMount) { m.SubPath = name }
}

// create makes a pod and does not wait for it.
func (t *T) create(pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := t.client.CoreV1().Pods(t.Namespace).Create(t.ctx(), pod, metav1.CreateOptions{})
	t.must(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[pod.UID] = pod.Name
	return pod
}

// start makes a pod and waits until it is ready.
func (t *T) start(name string, options ...podOption) *corev1.Pod {
	t.Helper()
	pod := t.create(t.newPod(name, options...))
	t.waitReady(pod)
	return pod
}

// waitReady waits until all containers of a pod are ready.
func (t *T) waitReady(pod *corev1.Pod) {
	t.Helper()
	t.waitReadyAfter(0, pod)
}

// waitReadyAfter is waitReady for a pod that something holds up for so long.
func (t *T) waitReadyAfter(heldUp time.Duration, pod *corev1.Pod) {
	t.Helper()
	if err := retry(heldUp+t.patience, func() error { return t.ready(pod) }); err != nil {
		t.Fatalf("pod %s does not get ready: %v%s", pod.Name, err, t.eventsOf(pod.Name))
	}
}

func (t *T) ready(pod *corev1.Pod) error {
	now, err := t.client.CoreV1().Pods(pod.Namespace).Get(t.ctx(), pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return notReady(now)
}

// notReady is an error unless all containers of a pod are ready.
func notReady(pod *corev1.Pod) error {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("it is %s", pod.Status.Phase)
}

// delete deletes pods as users do, and waits until they are gone.
func (t *T) delete(pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		t.must(t.client.CoreV1().Pods(pod.Namespace).Delete(t.ctx(), pod.Name, metav1.DeleteOptions{}))
	}
	for _, pod := range pods {
		t.waitGone(pod)
	}
}

// waitGone waits until a pod that is being deleted is gone.
func (t *T) waitGone(pod *corev1.Pod) {
	t.Helper()
	err := retry(t.patience, func() error {
		now, err := t.client.CoreV1().Pods(pod.Namespace).Get(t.ctx(), pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case now.UID != pod.UID:
			return nil
		}
		return stillThere([]corev1.Pod{*now})
	})
	if err != nil {
		t.Fatalf("pod %s stays: %v%s", pod.Name, err, t.eventsOf(pod.Name))
	}
}

func stillThere(pods []corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		errs = append(errs, fmt.Errorf("pod %s is still there, %s", p.Name, p.Status.Phase))
	}
	return errors.Join(errs...)
}

// sh runs a script in the first container of a pod, and returns what it said,
// without white space at the end.
func (t *T) sh(pod *corev1.Pod, script string) string {
	t.Helper()
	out, err := t.trySh(pod, script)
	if err != nil {
		t.Fatalf("in pod %s: %s: %v: %s", pod.Name, script, err, out)
	}
	return out
}

func (t *T) trySh(pod *corev1.Pod, script string) (string, error) {
	out, err := t.exec(pod.Namespace, pod.Name, pod.Spec.Containers[0].Name, "/bin/sh", "-c", script)
	return strings.TrimSpace(out), err
}

// wantSh runs a script that has to say something.
func (t *T) wantSh(pod *corev1.Pod, script, want string) {
	t.Helper()
	if got := t.sh(pod, script); got != want {
		t.Errorf("in pod %s: %s: got %q, want %q", pod.Name, script, got, want)
	}
}

// eventsOf is what kubectl describe shows at its end.
func (t *T) eventsOf(name string) string {
	list, err := t.client.CoreV1().Events(t.Namespace).List(t.ctx(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return "; its events: " + err.Error()
	}
	var text strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&text, "\n  %s %s: %s", e.Type, e.Reason, e.Message)
	}
	return text.String()
}
