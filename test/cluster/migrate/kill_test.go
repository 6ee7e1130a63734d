package migrate_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/test/controlplane"
)

// envAllRequests has the program be killed at each request, before and after it,
// also where no pod has the volume. Without it that is done before those that change a
// volume or a claim: the others, and those after which it is killed, are in the table of
// TestStruck, which ends a run and not a process, and so takes a tenth of the time.
const envAllRequests = "MIGRATE_KILL_ALL"

func allRequests() bool { return os.Getenv(envAllRequests) != "" }

// counted are the requests at which the program is killed.
func counted(r controlplane.Request) bool {
	return allRequests() || r.Changes() && strings.HasPrefix(r.Resource, "persistentvolume")
}

// created is a request that makes a volume.
func created(r controlplane.Request) bool {
	return r.Verb == "create" && r.Resource == "persistentvolumes" && !r.DryRun
}

// TestKilled kills the program at each request, before and after the API server
// has done it, and goes on or back.
func TestKilled(t *testing.T) {
	w := start(t)
	w.guard()
	inWindow := controlplane.Moment{N: 1, Fits: created}
	pods, times := []bool{true}, []bool{false} // true: after
	if allRequests() {
		pods, times = []bool{true, false}, []bool{false, true}
	}
	for _, pod := range pods {
		for _, j := range []journey{
			{name: "apply then resume", first: nil, killed: "apply", then: "resume", ends: (*subject).migrated},
			{name: "apply then rollback", first: nil, killed: "apply", then: "rollback", ends: (*subject).untouched},
			{name: "rollback then resume", first: applied, killed: "rollback", then: "resume", ends: (*subject).untouched},
			{name: "rollback then rollback", first: applied, killed: "rollback", then: "rollback", ends: (*subject).untouched},
			{name: "resume then resume", first: killedAt(inWindow), killed: "resume", then: "resume", ends: (*subject).migrated},
			{name: "resume then rollback", first: killedAt(inWindow), killed: "resume", then: "rollback", ends: (*subject).untouched},
			{name: "rollback in the window then rollback", first: killedAt(inWindow), killed: "rollback", then: "rollback", ends: (*subject).untouched},
		} {
			t.Run(strings.ReplaceAll(fmt.Sprintf("%s/pod=%t", j.name, pod), " ", "-"), func(t *testing.T) {
				j.pod = pod
				w := w.with(t)
				for _, after := range times {
					n := 1
					for j.make(w, controlplane.Moment{N: n, Fits: counted, After: after}) {
						n++
					}
					t.Logf("%s: killed at each of %d requests, after=%t", j.name, n-1, after)
					if n < 3 {
						t.Error("it was killed hardly ever")
					}
				}
			})
		}
	}
}

// A journey is one migration; its program is killed.
type journey struct {
	name string
	pod  bool // one has the volume, from the bridge
	// first is done before.
	first  func(*migrator, *subject)
	killed string // the command that is killed
	then   string // the command that comes after
	ends   func(*subject)
}

func applied(o *migrator, s *subject) {
	o.do(0, "apply", s.name, "--accept", "reclaim-policy")
	s.migrated()
}

func killedAt(m controlplane.Moment) func(*migrator, *subject) {
	return func(o *migrator, s *subject) {
		if killed, r := o.killed(m, "apply", s.name, "--accept", "reclaim-policy"); !killed {
			o.t.Fatalf("it was not killed:\n%s", &r.out)
		}
	}
}

var number int //nolint:gochecknoglobals // names of volumes are never used twice

// make makes the journey; false: the program came to its end before the moment.
func (j journey) make(w *world, m controlplane.Moment) bool {
	w.t.Helper()
	number++
	name := fmt.Sprintf("v-%d", number)
	s := w.idleOrLive(name, j.pod)
	defer s.gone()
	o := w.migrator(controlplane.Admin)
	defer o.proxy.Away()
	if j.first != nil {
		j.first(o, s)
	}
	args := []string{j.killed, name}
	if j.killed == "apply" {
		args = append(args, "--accept", "reclaim-policy")
	}
	killed, r := o.killed(m, args...)
	was := w.inCluster(name)
	s.kept()
	last := o.last()
	next := o.begin(j.then, name)
	code := next.wait()
	switch {
	case was == nil:
		// Nothing was begun, so there is nothing to go on with.
		s.untouched()
	case was.Stage == "Finished" && was.Direction == "ToCSI" && j.then == "resume":
		s.migrated() // it was not begun, or has come to its end
	case was.Stage == "Finished" && was.Direction == "ToFlexVolume":
		s.untouched()
	case code != 0:
		w.t.Errorf("%s: exit code %d\n%s", j.then, code, &next.out)
	default:
		j.ends(s)
		s.restorable(o)
		w.once(s)
	}
	o.harmless()
	if w.t.Failed() {
		w.t.Fatalf("%s at %v; it was %s, and had said\n%s\nand %s said\n%s", describe(m, j.killed), last, was, &r.out, j.then, &next.out)
	}
	return killed
}

func (w *world) idleOrLive(name string, pod bool) *subject {
	w.t.Helper()
	if pod {
		return w.withPod(name)
	}
	return w.idle(name)
}

// once wants one volume, and nothing to be left to do.
func (w *world) once(s *subject) {
	w.t.Helper()
	all, err := w.Admin().CoreV1().PersistentVolumes().List(w.t.Context(), metav1.ListOptions{})
	w.check(err)
	var of []string
	for i := range all.Items {
		pv := &all.Items[i]
		if ref := pv.Spec.ClaimRef; ref != nil && ref.Name == s.name || strings.HasPrefix(pv.Name, s.name+"-") {
			of = append(of, pv.Name)
		}
	}
	if len(of) != 1 {
		w.t.Errorf("the claim has the volumes %q", of)
	}
}

// last is the last request that came.
func (o *migrator) last() controlplane.Request {
	trace := o.proxy.Trace()
	o.seen = append(o.seen, trace...)
	if len(trace) == 0 {
		return controlplane.Request{}
	}
	return trace[len(trace)-1]
}

// harmless wants nothing to have been asked for that a migration has no business
// with.
func (o *migrator) harmless() {
	o.t.Helper()
	o.last()
	for _, r := range o.seen {
		if !r.Changes() {
			continue
		}
		switch r.String() {
		case "patch persistentvolumes", "delete persistentvolumes", "create persistentvolumes", "patch persistentvolumeclaims":
		case "create configmaps", "patch configmaps", "delete configmaps", "create leases", "update leases", "patch leases":
		default:
			o.t.Errorf("it has asked for %s %s", r, r.Name)
		}
	}
}

// guard watches for what must never be seen.
func (w *world) guard() {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	claims, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Watch(ctx, metav1.ListOptions{})
	w.check(err)
	volumes, err := w.Admin().CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	w.check(err)
	done := make(chan struct{})
	seen := 0
	go func() {
		defer close(done)
		for {
			select {
			case e, ok := <-claims.ResultChan():
				if !ok {
					return
				}
				if c, isClaim := e.Object.(*corev1.PersistentVolumeClaim); isClaim && c.DeletionTimestamp != nil && c.Annotations["test/over"] == "" {
					w.t.Errorf("claim %s is being deleted", c.Name)
				}
			case e, ok := <-volumes.ResultChan():
				if !ok {
					return
				}
				seen++
				if pv, isVolume := e.Object.(*corev1.PersistentVolume); isVolume && (pv.DeletionTimestamp != nil || e.Type == watch.Deleted) && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && pv.Annotations["test/over"] == "" {
					w.t.Errorf("volume %s is being deleted with policy %s", pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
				}
			}
		}
	}()
	w.t.Cleanup(func() {
		stop()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		}
		w.t.Logf("%d changes of volumes were seen", seen)
	})
}
