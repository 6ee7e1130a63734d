package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/node"
	"github.com/flex2csi/flex2csi/test/parts"
)

// migrationsDisturbed are migrations with a process that dies in each step.
func migrationsDisturbed() []scenario {
	var all []scenario
	for _, p := range []struct {
		name, what string
		victim     victim
		back       bool // on the way back, too
	}{
		// On the way back a pod has the CSI mount alone, which a kubelet that comes up
		// ends before it asks the bridge for the other: docs/migrate-guide.md, Risks.
		{"kubelet", "there", part(func(t *T) *parts.Part { return t.node.Kubelet }), false},
		{"kcm", "there and back", part(func(t *T) *parts.Part { return t.node.ControllerManager }), true},
		{"attacher", "there and back", inPods("csi", "driver=disk,part=controller", "--csi-address=/csi/csi.sock"), true},
		{"bridge", "there and back", inPods(installed, "", "serve"), true},
		{"driver", "there and back", inPods("csi", "driver=disk", "--name="+disk().csi), true},
	} {
		all = append(all, scenario{
			"migrate-disturbed-" + p.name, "… " + p.what + ", and after each change that is made for it kill -9 of the " + p.name,
			func(t *T) { migrateDisturbed(t, p.victim, p.back) },
		})
	}
	return all
}

// A victim is a program that dies, and is started again. How many processes of it
// there are is none while it is not back yet.
type victim struct {
	there, kill func(*T) (int, error)
	// renew replaces the pods with the program, of which the kubelet would start it again
	// ever later, in the scenarios that follow, too; nil: it is not in pods.
	renew func(*T)
}

// part is a program of the node.
func part(of func(*T) *parts.Part) victim {
	there := func(t *T) (int, error) {
		if of(t).Ended() {
			return 0, nil
		}
		return 1, nil
	}
	return victim{there: there, kill: func(t *T) (int, error) {
		n, err := there(t)
		return n, errors.Join(err, of(t).Restart())
	}}
}

// inPods are processes of pods that were started with an argument.
func inPods(namespace, selector, argument string) victim {
	find := func(t *T) (pids []int, err error) {
		list, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		var errs []error
		for i := range list.Items {
			some, err := processes(&list.Items[i], argument)
			pids, errs = append(pids, some...), append(errs, err)
		}
		return pids, errors.Join(errs...)
	}
	there := func(t *T) (int, error) {
		pids, err := find(t)
		return len(pids), err
	}
	return victim{there: there, kill: func(t *T) (killed int, err error) {
		pids, err := find(t)
		errs := []error{err}
		for _, pid := range pids {
			err := kill(pid)
			if err == nil {
				killed++
			}
			errs = append(errs, ignoreNoProcess(err))
		}
		return killed, errors.Join(errs...)
	}, renew: func(t *T) { t.renew(namespace, selector) }}
}

// renew has other pods take the place of those of a selector.
func (t *T) renew(namespace, selector string) {
	t.Helper()
	pods := t.client.CoreV1().Pods(namespace)
	old, err := pods.List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
	t.must(err)
	for i := range old.Items {
		t.must(pods.Delete(t.ctx(), old.Items[i].Name, metav1.DeleteOptions{}))
	}
	t.must(retry(2*time.Minute, func() error {
		now, err := pods.List(t.ctx(), metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(now.Items) < len(old.Items) {
			err = fmt.Errorf("of %d pods there are %d", len(old.Items), len(now.Items))
		}
		if err != nil {
			return err
		}
		for i := range now.Items {
			if slices.ContainsFunc(old.Items, func(o corev1.Pod) bool { return o.UID == now.Items[i].UID }) {
				return fmt.Errorf("pod %s is still there", now.Items[i].Name)
			}
		}
		return t.rolledOut(t.ctx(), namespace)
	}))
}

// waitBack waits until there is something to kill. A kubelet waits up to five
// minutes before it starts a container again that has ended often, and what it
// says of it may be of before.
func (t *T) waitBack(dies victim) {
	t.Helper()
	t.must(retry(6*time.Minute, func() error {
		n, err := dies.there(t)
		if err == nil && n == 0 {
			err = errors.New("what is to be killed is not there")
		}
		return err
	}))
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

// waitNodeReady waits until the node is Ready: a kubelet before 1.30 that has started is not, for
// some seconds, and a volume is not handed over there.
func (t *T) waitNodeReady() {
	t.Helper()
	t.wait("a node that is Ready", func() error {
		n, err := t.client.CoreV1().Nodes().Get(t.ctx(), node.Name, metav1.GetOptions{})
		if err == nil && !objects.NodeReady(n) {
			err = errors.New("it is not")
		}
		return err
	})
}

func migrateDisturbed(t *T, dies victim, back bool) {
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
		n, err := dies.kill(t)
		if err != nil {
			t.Errorf("after %s: %v", change, err)
		}
		times, killed = times+1, killed+n
	}
	t.waitTold()
	for _, command := range []string{"apply", "rollback"} {
		t.waitBack(dies)
		t.waitNodeReady()
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
	if dies.renew != nil {
		dies.renew(t)
	}
}
