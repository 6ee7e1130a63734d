package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// migrationsDisturbed are migrations in whose every step something dies.
func migrationsDisturbed() []scenario {
	var all []scenario
	for _, p := range []struct {
		name, what string
		kill       func(*T) error
		back       bool // on the way back, too
	}{
		// On the way back a pod has the CSI mount alone, which a kubelet that comes up
		// ends before it asks the bridge for the other: docs/migrate-guide.md, Risks.
		{"kubelet", "there", func(t *T) error { return t.node.Kubelet.Restart() }, false},
		{"kcm", "there and back", func(t *T) error { return t.node.ControllerManager.Restart() }, true},
		{"attacher", "there and back", func(t *T) error {
			return t.killAll("csi", "driver=disk,part=controller", "--csi-address=/csi/csi.sock")
		}, true},
		{"bridge", "there and back", func(t *T) error { return t.killAll(installed, "", "serve") }, true},
		{"driver", "there and back", func(t *T) error { return t.killAll("csi", "driver=disk", "--name="+disk().csi) }, true},
	} {
		all = append(all, scenario{
			"migrate-disturbed-" + p.name, "… " + p.what + ", and after each change that is made for it kill -9 of the " + p.name,
			func(t *T) { migrateDisturbed(t, p.kill, p.back) },
		})
	}
	return all
}

// killAll kills the processes of pods that were started with an argument. A
// container that was killed before may not be back yet.
func (t *T) killAll(namespace, selector, argument string) error {
	list, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		pids, err := processes(&list.Items[i], argument)
		errs = append(errs, err)
		for _, pid := range pids {
			errs = append(errs, ignoreNoProcess(kill(pid)))
		}
	}
	return errors.Join(errs...)
}

func migrateDisturbed(t *T, disturb func(*T) error, back bool) {
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
	times := 0
	g.after = func(change string) {
		mu.Lock()
		defer mu.Unlock()
		times++
		if err := disturb(t); err != nil {
			t.Errorf("after %s: %v", change, err)
		}
	}
	t.waitTold()
	for _, command := range []string{"apply", "rollback"} {
		args := []string{command, "--width", "3", "--yes", "--timeout", "4m", "--kubeconfig", kubeconfig}
		for _, w := range writers {
			args = append(args, w.v.name)
		}
		results, err := t.migrate(args...)
		t.wantDone(results, err)
		if times == 0 && g.after != nil {
			t.Error("nothing was disturbed")
		}
		t.note("%s: disturbed %d times, %d requests for %d volumes", command, times, g.count(), len(writers))
		times = 0
		if !back {
			g.after = nil
		}
		t.must(errors.Join(t.rolledOut(t.ctx(), "csi"), t.rolledOut(t.ctx(), installed)))
		for _, w := range writers {
			t.wait("a kubelet that knows pod "+w.pod.Name, func() error {
				_, err := t.trySh(w.pod, "true")
				return err
			})
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
