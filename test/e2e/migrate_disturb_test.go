package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/parts"
)

// migrationsDisturbed are migrations in whose every step something dies.
func migrationsDisturbed() []scenario {
	var all []scenario
	for _, p := range []struct {
		name, what string
		kill       func(*T) (int, error)
		back       bool // on the way back, too
	}{
		// On the way back a pod has the CSI mount alone, which a kubelet that comes up
		// ends before it asks the bridge for the other: docs/migrate-guide.md, Risks.
		{"kubelet", "there", func(t *T) (int, error) { return again(t.node.Kubelet) }, false},
		{"kcm", "there and back", func(t *T) (int, error) { return again(t.node.ControllerManager) }, true},
		{"attacher", "there and back", func(t *T) (int, error) {
			return t.killAll("csi", "driver=disk,part=controller", "--csi-address=/csi/csi.sock")
		}, true},
		{"bridge", "there and back", func(t *T) (int, error) { return t.killAll(installed, "", "serve") }, true},
		{"driver", "there and back", func(t *T) (int, error) { return t.killAll("csi", "driver=disk", "--name="+disk().csi) }, true},
	} {
		all = append(all, scenario{
			"migrate-disturbed-" + p.name, "… " + p.what + ", and after each change that is made for it kill -9 of the " + p.name,
			func(t *T) { migrateDisturbed(t, p.kill, p.back) },
		})
	}
	return all
}

// again kills a program of the node, and starts it. How many were killed is none
// when it had ended by itself.
func again(p *parts.Part) (killed int, err error) {
	if !p.Ended() {
		killed = 1
	}
	return killed, p.Restart()
}

// killAll kills the processes of pods that were started with an argument, and says
// how many it has killed. A container that was killed before may not be back yet.
func (t *T) killAll(namespace, selector, argument string) (killed int, err error) {
	list, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return 0, err
	}
	var errs []error
	for i := range list.Items {
		pids, err := processes(&list.Items[i], argument)
		errs = append(errs, err)
		for _, pid := range pids {
			err := kill(pid)
			if err == nil {
				killed++
			}
			errs = append(errs, ignoreNoProcess(err))
		}
	}
	return killed, errors.Join(errs...)
}

// waitKnown waits until something can be executed in a pod: a kubelet that has just
// started does not know its pods yet.
func (t *T) waitKnown(pod *corev1.Pod) {
	t.Helper()
	t.wait("a kubelet that knows pod "+pod.Name, func() error {
		_, err := t.trySh(pod, "true")
		return err
	})
}

func migrateDisturbed(t *T, disturb func(*T) (int, error), back bool) {
	var writers []*writer
	var was []*corev1.PersistentVolume
	for i, d := range []driver{disk(), attached(), share()} {
		v := t.volume(d, strings.TrimPrefix(d.flex, "example.com/"))
		t.follow(v)
		writers = append(writers, t.writer(fmt.Sprint("pod-", i), v))
		was = append(was, t.persistentVolume(v))
	}
	g, kubeconfig := t.gate()
	var mu sync.Mutex
	times, killed := 0, 0
	g.after = func(change string) {
		mu.Lock()
		defer mu.Unlock()
		n, err := disturb(t)
		if err != nil {
			t.Errorf("after %s: %v", change, err)
		}
		times, killed = times+1, killed+n
	}
	t.waitTold()
	for _, command := range []string{"apply", "rollback"} {
		args := []string{command, "--width", "3", "--yes", "--timeout", "4m", "--kubeconfig", kubeconfig}
		for _, w := range writers {
			args = append(args, w.v.name)
		}
		results, err := t.migrate(args...)
		t.wantDone(results, err)
		mu.Lock()
		if killed == 0 && g.after != nil {
			t.Errorf("%s: %d changes, and nothing was killed", command, times)
		}
		t.note("%s: %d killed after %d changes, %d requests for %d volumes", command, killed, times, g.count(), len(writers))
		times, killed = 0, 0
		mu.Unlock()
		if !back {
			g.after = nil
		}
		// A kubelet waits up to five minutes before it starts a container again that
		// has ended this often.
		t.must(retry(5*time.Minute, func() error {
			return errors.Join(t.rolledOut(t.ctx(), "csi"), t.rolledOut(t.ctx(), installed))
		}))
		for _, w := range writers {
			t.waitKnown(w.pod)
		}
		for i, w := range writers {
			if command == "apply" {
				t.wantCSI(w.v, was[i])
			} else {
				t.wantFlex(w.v, was[i])
			}
			w.writes()
			w.note()
		}
	}
	for _, w := range writers {
		t.delete(w.pod)
	}
	for _, w := range writers {
		t.waitIdle(w.v)
		calls := map[string]int{"NodeUnstageVolume": 1}
		if w.v.csi == disk().csi {
			calls["ControllerUnpublishVolume"] = 1
		}
		t.wantCalls(w.v, calls)
	}
}
