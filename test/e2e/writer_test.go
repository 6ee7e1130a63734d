package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A writer is a pod that appends a numbered line to a file of its volume five
// times a second, has it on the disk, reads it back, and ends with an error when
// any of that fails. It goes on after the last line that it finds, and wants all
// lines before to be there.
type writer struct {
	t   *T
	pod *corev1.Pod
	v   *volume
	log string
}

// writing makes a pod's container a writer.
func writing(log string) podOption {
	const script = `log=%s; n=0; trap 'exit 0' TERM
fail() { echo "line $n: $*" >/dev/termination-log; exit 1; }
if [ -e $log ]; then
	awk '$1 != NR { exit 1 }' $log || fail "one before it is not there"
	n=$(wc -l <$log)
fi
while n=$((n + 1)); read up rest </proc/uptime; do
	echo "$n $up" >>$log && sync $log || fail "not written"
	[ "$(tail -n 1 $log)" = "$n $up" ] || fail "read back as $(tail -n 1 $log)"
	sleep 0.2
done`
	return func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Command = []string{"/bin/sh", "-c", fmt.Sprintf(script, log)}
	}
}

// writer starts one, with a file of its own name.
func (t *T) writer(name string, v *volume) *writer {
	t.Helper()
	w := &writer{t: t, v: v, log: "/data/log-" + name}
	w.pod = t.start(name, v.at("/data"), writing(w.log))
	return w
}

// lastingWriter is a writer that the kubelet starts again.
func (t *T) lastingWriter(name string, v *volume) *writer {
	t.Helper()
	w := &writer{t: t, v: v, log: "/data/log-" + name}
	w.pod = t.start(name, v.at("/data"), writing(w.log), func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways })
	return w
}

// next starts one that goes on with the lines of this one, which has ended.
func (w *writer) next(name string) *writer {
	w.t.Helper()
	n := w.pending(name)
	w.t.waitReady(n.pod)
	return n
}

// pending is next, and does not wait for its pod.
func (w *writer) pending(name string) *writer {
	w.t.Helper()
	n := &writer{t: w.t, v: w.v, log: w.log}
	n.pod = w.t.create(w.t.newPod(name, w.v.at("/data"), writing(w.log)))
	return n
}

// note adds the figures to the table.
func (w *writer) note() {
	w.t.Helper()
	n, gap := w.lines()
	w.t.note("%d lines, at most %.1f s between two", n, gap)
}

// lines says how many lines there are, and the longest time between two of them.
// All have to be there.
func (w *writer) lines() (n int, gap float64) {
	w.t.Helper()
	const count = `awk '$1 != NR { print "line", NR, "is", $0; bad = 1; exit }
{ if (NR > 1 && $2 - last > gap) gap = $2 - last; last = $2 } END { if (!bad) print NR, gap + 0 }' `
	said := w.t.sh(w.pod, count+w.log)
	if _, err := fmt.Sscan(said, &n, &gap); err != nil {
		w.t.Fatalf("%s of pod %s: %s", w.log, w.pod.Name, said)
	}
	return n, gap
}

// writes checks that the pod is the one that it was, and goes on to write.
func (w *writer) writes() {
	w.t.Helper()
	now, err := w.t.client.CoreV1().Pods(w.t.Namespace).Get(w.t.ctx(), w.pod.Name, metav1.GetOptions{})
	w.t.must(err)
	if now.UID != w.pod.UID || now.Status.Phase != corev1.PodRunning || now.DeletionTimestamp != nil {
		w.t.Fatalf("pod %s (%s, was %s) is %s: %s", now.Name, now.UID, w.pod.UID, now.Status.Phase, terminations(now))
	}
	before, _ := w.lines()
	w.t.wait("more lines", func() error {
		if n, _ := w.lines(); n <= before {
			return fmt.Errorf("still %d", n)
		}
		return nil
	})
}
