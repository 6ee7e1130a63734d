package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeComponent and controllerComponent select the pods of flex2csi.
const (
	nodeComponent       = "app.kubernetes.io/component=node"
	controllerComponent = "app.kubernetes.io/component=controller"
)

// podOf returns the one pod of a namespace with a label that is not about to go.
func (t *T) podOf(namespace, selector string) (*corev1.Pod, error) {
	list, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	stay := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(stay) != 1 {
		return nil, fmt.Errorf("%d pods in %s with %s, want one", len(stay), namespace, selector)
	}
	return &stay[0], nil
}

// processes are those of a pod that were started with an argument. The test is in
// the node's PID namespace, so there are no others.
func processes(pod *corev1.Pod, argument string) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	var found []int
	for _, dir := range entries {
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(group), "pod"+string(pod.UID)) {
			continue // or it has ended by now
		}
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && slices.Contains(strings.Split(string(argv), "\x00"), argument) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				return nil, err
			}
			found = append(found, pid)
		}
	}
	return found, err
}

// daemon is the pod and the process of the daemon.
func (t *T) daemon() (*corev1.Pod, int) {
	t.Helper()
	pod, err := t.podOf(installed, nodeComponent)
	t.must(err)
	pids, err := processes(pod, "serve")
	t.must(err)
	if len(pids) != 1 {
		t.Fatalf("the processes of the daemon in pod %s are %v, want one", pod.Name, pids)
	}
	return pod, pids[0]
}

// killDaemon ends the daemon as the kernel does when memory runs out.
func (t *T) killDaemon() {
	t.Helper()
	pod, pid := t.daemon()
	t.must(kill(pid))
	t.waitRestarted(pod, "serve")
}

// waitRestarted waits until a container has been started again since, and its pod
// is ready.
func (t *T) waitRestarted(before *corev1.Pod, container string) {
	t.Helper()
	t.wait("container "+container+" of pod "+before.Name+" to be started again", func() error { return t.wasRestarted(before, container) })
}

// wasRestarted is an error as long as a container has not been started again since, or its
// pod is not ready.
func (t *T) wasRestarted(before *corev1.Pod, container string) error {
	now, err := t.client.CoreV1().Pods(before.Namespace).Get(t.ctx(), before.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if restarts(now, container) == restarts(before, container) {
		return errors.New("it has not been")
	}
	return t.ready(now)
}

func restarts(pod *corev1.Pod, container string) int32 {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container {
			return s.RestartCount
		}
	}
	return 0
}

func kill(pid int) error { return unix.Kill(pid, unix.SIGKILL) }

// ignoreNoProcess: it has ended by itself.
func ignoreNoProcess(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
