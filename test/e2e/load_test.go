package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A load is pods that come and go, one after the other on each of its volumes.
// Each wants to find what the one before it has written, so that a volume that is
// lost, another one, or not mounted at all, is noticed.
type load struct {
	t       *T
	ctx     context.Context
	stop    context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	begun   map[*volume]int
	done    map[*volume]int
	hasty   map[string]bool // pods deleted before they were up, by name
	slowest time.Duration
}

// load begins one.
func (t *T) load(volumes ...*volume) *load {
	t.Helper()
	l := &load{t: t, begun: map[*volume]int{}, done: map[*volume]int{}, hasty: map[string]bool{}}
	l.ctx, l.stop = context.WithCancel(t.ctx())
	for _, v := range volumes {
		l.begun[v], l.done[v] = 0, 0
		l.workers.Go(func() { l.work(v) })
	}
	t.Cleanup(l.end)
	return l
}

// end lets the last pods go, and notes how many there were.
func (l *load) end() {
	if l.ctx.Err() != nil {
		return // the cleanup after the scenario's own end
	}
	l.stop()
	l.workers.Wait()
	lives := 0
	for _, n := range l.done {
		lives += n
	}
	l.t.note("%d pods came and went, the slowest was up after %.1f s", lives, l.slowest.Seconds())
}

// more waits until each volume has had n pods that were made after now.
func (l *load) more(n int) {
	l.t.Helper()
	l.mu.Lock()
	want := map[*volume]int{}
	for v, begun := range l.begun {
		want[v] = begun + n
	}
	l.mu.Unlock()
	l.t.wait("pods to come and go", func() error {
		if l.t.Failed() {
			l.t.FailNow() // it says why by itself
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		var late []error
		for v, n := range want {
			if l.done[v] < n {
				late = append(late, fmt.Errorf("of the pods with %s %d are done, not %d", v.name, l.done[v], n))
			}
		}
		return errors.Join(late...)
	})
}

func (l *load) work(v *volume) {
	written := 0
	for n := 0; l.ctx.Err() == nil; n++ {
		l.mu.Lock()
		l.begun[v]++
		l.mu.Unlock()
		// Now and then a pod is deleted before it is up.
		hasty := n%4 == 3
		took, wrote, err := l.life(v, n, written, hasty)
		if err != nil {
			l.t.Errorf("pod %d with %s: %v", n, v.name, err)
			return
		}
		if wrote {
			written++
		}
		l.mu.Lock()
		l.done[v]++
		l.slowest = max(l.slowest, took)
		l.mu.Unlock()
	}
}

// haste is when a hasty pod is deleted: while its volume is being set up.
const haste = 400 * time.Millisecond

// life is one pod's, and says how long it took to be up, and whether it has counted itself.
func (l *load) life(v *volume, n, written int, hasty bool) (took time.Duration, wrote bool, err error) {
	pod := l.t.newPod(fmt.Sprintf("load-%s-%d", strings.TrimPrefix(v.name, l.t.Namespace+"-"), n), v.at("/data"))
	if !hasty {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Command = []string{"/bin/sh", "-c", countUp(written)}
	}
	l.mu.Lock()
	l.hasty[pod.Name] = hasty
	l.mu.Unlock()
	began := time.Now()
	if err := l.t.insist(func() error { return l.t.tryCreate(pod) }); err != nil {
		return 0, false, err
	}
	if hasty {
		time.Sleep(haste)
	} else {
		err := l.t.succeeded(pod.Name)
		if err != nil && !errors.Is(err, errNotStarted) {
			return 0, false, err
		}
		took, wrote = time.Since(began), err == nil
	}
	pods := l.t.client.CoreV1().Pods(l.t.Namespace)
	if err := l.t.insist(func() error { return pods.Delete(l.t.ctx(), pod.Name, metav1.DeleteOptions{}) }); err != nil {
		return took, wrote, err
	}
	return took, wrote, l.t.insist(func() error {
		_, err := pods.Get(l.t.ctx(), pod.Name, metav1.GetOptions{})
		if err == nil {
			err = errors.New("the pod is still there" + l.t.eventsOf(pod.Name))
		}
		return err
	})
}

// countUp is a script that finds how many pods have been before, and counts
// itself.
func countUp(before int) string {
	return fmt.Sprintf(`was=$(cat /data/count 2>/dev/null || echo 0)
if [ "$was" != %d ]; then echo "the volume was used by $was pods, not %d" > /dev/termination-log; exit 1; fi
echo %d > /data/new && sync && mv /data/new /data/count && sync`, before, before, before+1)
}

// insist tries until the answer is the expected one, also without an answer:
// none, or that there is no such thing any more.
func (t *T) insist(try func() error) error {
	return retry(t.patience, func() error {
		if err := try(); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// tryCreate makes a pod unless a try before this one has made it.
func (t *T) tryCreate(pod *corev1.Pod) error {
	pods := t.client.CoreV1().Pods(t.Namespace)
	made, err := pods.Create(t.ctx(), pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = pods.Get(t.ctx(), pod.Name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[made.UID] = made.Name
	return nil
}

// errNotStarted: the kubelet died while it had a container started, which containerd gives
// up then. Such a container is not started again with restartPolicy Never.
var errNotStarted = errors.New("the start of the container was given up")

func notStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		e := s.State.Terminated
		return e != nil && e.Reason == "StartError" && strings.Contains(e.Message, "context canceled")
	})
}

// succeeded waits until a pod has ended by itself. It must not have failed.
func (t *T) succeeded(name string) error {
	var failed error
	err := retry(t.patience, func() error {
		pod, err := t.client.CoreV1().Pods(t.Namespace).Get(t.ctx(), name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case pod.Status.Phase == corev1.PodFailed && notStarted(pod):
			failed = errNotStarted
			return nil
		case pod.Status.Phase == corev1.PodFailed:
			failed = fmt.Errorf("failed: %s %s %s", pod.Status.Reason, pod.Status.Message, terminations(pod))
			return nil
		case pod.Status.Phase != corev1.PodSucceeded:
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w%s", err, t.eventsOf(name))
	}
	return errors.Join(failed, err)
}

// terminations is how the containers of a pod have ended.
func terminations(pod *corev1.Pod) string {
	var said []string
	for _, s := range pod.Status.ContainerStatuses {
		if e := s.State.Terminated; e != nil {
			said = append(said, fmt.Sprintf("%s ended with %d %s", s.Name, e.ExitCode, e.Message))
		}
	}
	return strings.Join(said, ", ")
}

// A witness is a pod that runs all the time. Its volumes have to stay as they are.
type witness struct {
	t       *T
	pod     *corev1.Pod
	volumes []*volume
}

// witness starts one.
func (t *T) witness(volumes ...*volume) *witness {
	t.Helper()
	w := &witness{t: t, volumes: volumes}
	var options []podOption
	for i, v := range volumes {
		options = append(options, v.at(fmt.Sprintf("/data/%d", i)))
	}
	w.pod = t.start("witness", options...)
	for i := range volumes {
		t.sh(w.pod, fmt.Sprintf("echo witness-%d > /data/%d/file && sync", i, i))
	}
	return w
}

// look checks that the pod still has its volumes, and can write to them.
func (w *witness) look() {
	w.t.Helper()
	for i := range w.volumes {
		w.t.wantSh(w.pod, fmt.Sprintf("cat /data/%d/file && echo again > /data/%d/more && sync", i, i), fmt.Sprintf("witness-%d", i))
	}
}

// undisturbed checks moreover that no container of it was started again.
func (w *witness) undisturbed() {
	w.t.Helper()
	w.look()
	now, err := w.t.client.CoreV1().Pods(w.t.Namespace).Get(w.t.ctx(), w.pod.Name, metav1.GetOptions{})
	w.t.must(err)
	for _, s := range now.Status.ContainerStatuses {
		if s.RestartCount > 0 {
			w.t.Errorf("container %s of the pod was started again", s.Name)
		}
	}
}

// disturb does something to a node on which a pod with volumes runs, and others
// come and go. None may notice.
func (t *T) disturb(what func(l *load)) {
	t.Helper()
	w := t.witness(t.volume(disk(), "w-disk"), t.volume(attached(), "w-attached"), t.volume(share(), "w-share", inline))
	l := t.load(t.volume(disk(), "disk"), t.volume(attached(), "attached"), t.volume(share(), "share", inline))
	l.more(1)
	what(l)
	l.more(1)
	l.end()
	w.undisturbed()
	t.delete(w.pod)
}
