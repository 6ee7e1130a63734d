package migrate_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/strike"
)

// TestTable has each request of each command fail in each way, in each mode, and then goes on or
// back with another process. Wherever that was, nothing is lost, and the end is one of the two
// volumes. By default it takes a sample; FLEX_TABLE=all has all (make table).
//
// What is equal is left out: a process that is killed at a request that changes nothing was
// killed after the one before, and such a request has no effect that it could have without an
// answer. After those there is only resume.
func TestTable(t *testing.T) {
	all := os.Getenv("FLEX_TABLE") == "all"
	for _, s := range scenes() {
		t.Run(s.name(), func(t *testing.T) {
			t.Parallel()
			base := s.prepare(t)
			requests := base.record(t, s)
			cells, failed := 0, 0
			for n, request := range requests {
				for i, f := range strike.List("pv1") {
					for k, then := range []string{"resume", "rollback"} {
						if !changes(request) && (!f.Reads || then == "rollback") || !all && !sampled(n, i, k, changes(request)) {
							continue
						}
						cells++
						c := cell{s, f, n + 1, request, then}
						if !t.Run(c.name(), func(t *testing.T) { c.strike(t, base) }) {
							failed++
						}
						if failed > 20 {
							t.Fatal("and so on")
						}
					}
				}
			}
			t.Logf("%d requests, %d cells", len(requests), cells)
			if len(requests) < 15 || cells < 5 {
				t.Errorf("only %d cells of %d requests", cells, len(requests))
			}
		})
	}
}

// sampled spreads a sample over all requests and faults.
func sampled(request, fault, then int, changes bool) bool {
	every := 101
	if changes {
		every = 23
	}
	return (request*31+fault*7+then*5)%every == 0
}

// A scene is a command, and the cluster before it.
type scene struct {
	command string
	mode    journal.Mode
	pod     bool
}

func scenes() (all []scene) {
	for _, command := range []string{"apply", "rollback", "resume"} {
		for _, mode := range []journal.Mode{journal.Live, journal.Rolling, journal.Offline} {
			all = append(all, scene{command, mode, true})
		}
	}
	return append(all, scene{"apply", journal.Live, false})
}

func (s scene) name() string { return fmt.Sprintf("%s/%s/pod=%t", s.command, s.mode, s.pod) }

// prepare comes to where the command can be given.
func (s scene) prepare(t *testing.T) (base *journey) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		base = newJourney(t, s.pod, s.mode)
		base.second("pv2", "other")
		base.dir = ""
		base.prepare(s.command)
		if s.command == "rollback" && s.mode == journal.Offline { // a person has started the pods
			base.api.person(1)
		}
		base.runner() // which reads the configuration, once for all
		base.api.requests = nil
	})
	return base
}

// clone is a journey that begins as another one has.
func (j *journey) clone(t *testing.T) *journey {
	t.Helper()
	time.Sleep(time.Hour) // each begins at the same time, and what was before is before
	clone := *j
	clone.t, clone.api = t, j.api.clone(t)
	clone.api.seen = clone.guard
	clone.was = j.was.DeepCopy()
	return &clone
}

// record returns the requests of a command that nothing happens to.
func (j *journey) record(t *testing.T, s scene) (requests []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clone := j.clone(t)
		clone.wants(t.Context(), s.command)
		requests = clone.api.requests
	})
	return requests
}

// meanwhile is what another client does.
func meanwhile(a *api, what strike.Meanwhile) {
	switch {
	case what == strike.Annotates:
		touch(a)
	case read(a, objects.PersistentVolumes(), "", "pv1") != nil:
		modify(a, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		})
	}
}

// touched is an annotation that another client sets.
const touched = "example.com/touched"

// touch changes each object that a migration looks at, and nothing that it depends on.
func touch(a *api) {
	for r, kind := range kinds() {
		for _, u := range a.objects(r, kind) {
			if strings.HasPrefix(u.GetName(), "pv2") || u.GetName() == "other" {
				continue
			}
			a.versions++
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[touched] = fmt.Sprint(a.versions)
			u.SetAnnotations(annotations)
			u.SetResourceVersion(fmt.Sprint(a.versions))
			if err := a.object.Update(r, u, u.GetNamespace()); err != nil {
				a.t.Fatal(err)
			}
		}
	}
}

// A cell is one of the table: a fault at a request, and what comes after it.
type cell struct {
	scene
	fault   strike.Blow
	n       int
	request string
	then    string
}

// inject has the fault happen, and returns whether it did.
func (c cell) inject(j *journey, kill context.CancelFunc) *bool {
	a, hit, since := j.api, false, time.Time{}
	over := func() bool { return c.fault.Again == strike.All && time.Since(since) > 30*time.Second }
	j.lease = func() error {
		if !hit || over() {
			return nil
		}
		return c.fault.Lease
	}
	at := func(n int, request string) error {
		if n == c.n {
			hit, since = true, time.Now()
		} else if !hit || over() || !c.again(request, since) {
			return nil
		}
		return c.happen(a, kill)
	}
	if a.before = at; c.fault.After {
		a.after = at
		a.before = func(int, string) error {
			if hit && c.fault.Err == nil {
				return context.Canceled
			}
			return nil
		}
	}
	return &hit
}

// again tells whether the fault happens at a later request, too.
func (c cell) again(request string, since time.Time) bool {
	switch {
	case c.fault.Meanwhile != strike.Nothing, c.fault.Err != nil && c.fault.Again == strike.Once:
		return false
	case c.fault.Again == strike.Equal:
		return request == c.request && time.Since(since) <= 2*time.Minute
	}
	return true
}

// happen does it to a request. Nothing is asked after a kill.
func (c cell) happen(a *api, kill context.CancelFunc) error {
	switch {
	case c.fault.Meanwhile != strike.Nothing:
		meanwhile(a, c.fault.Meanwhile)
	case c.fault.Kills():
		kill()
		return context.Canceled
	}
	return c.fault.Err
}

func (c cell) name() string {
	return strings.ReplaceAll(fmt.Sprintf("%d-%s/%s/%s", c.n, strings.ReplaceAll(c.request, "/", "-"), c.fault.Name, c.then), " ", "-")
}

// strike makes the journey of a cell.
func (c cell) strike(t *testing.T, base *journey) {
	synctest.Test(t, func(t *testing.T) {
		j := base.clone(t)
		pod := read(j.api, objects.Pods(), "shop", "orders-0")
		evictions := j.countEvictions()
		j.heldFor(c)
		running, kill := context.WithCancel(t.Context())
		defer kill()
		hit := c.inject(j, kill)
		came, err := j.do(running, c.command)
		j.heal()
		if was := j.api.requests[min(c.n, len(j.api.requests))-1]; !*hit || was != c.request {
			t.Errorf("request %d is %s", c.n, was)
		}
		j.safe()
		j.honest(c.command, came, err, running.Err() != nil)
		synctest.Wait()
		second, secondErr := j.do(t.Context(), c.then)
		j.ends(c.then)
		j.honest(c.then, second, secondErr, false)
		j.left(c, pod, base, *evictions)
		if t.Failed() {
			t.Logf("%s came to %+v (%v), and %s to %+v (%v)", c.command, came, err, c.then, second, secondErr)
		}
	})
}

// countEvictions counts those that have an effect.
func (j *journey) countEvictions() *int {
	count, before := new(int), j.api.seen
	j.api.seen = func(action clienttesting.Action) {
		before(action)
		if create, ok := action.(clienttesting.CreateActionImpl); ok && action.GetSubresource() == "eviction" && !dryRun(action) {
			pod := read(j.api, objects.Pods(), action.GetNamespace(), create.Object.(*unstructured.Unstructured).GetName())
			if uid, _, _ := unstructured.NestedString(create.Object.(*unstructured.Unstructured).Object, "deleteOptions", "preconditions", "uid"); pod != nil && string(pod.UID) == uid {
				*count++
			}
		}
	}
	return count
}

// heldFor wants no change without the Lease, but for the volume that is due and the journal.
func (j *journey) heldFor(c cell) {
	before := j.api.seen
	j.api.seen = func(action clienttesting.Action) {
		before(action)
		text := j.api.requests[len(j.api.requests)-1]
		if len(j.api.requests) > c.n && j.Held() != nil && changes(text) && text != "create persistentvolumes" && action.GetResource() != objects.ConfigMaps().Resource {
			j.t.Errorf("%s without the Lease", text)
		}
	}
}

// honest wants a result to say what is so.
func (j *journey) honest(command string, came migrate.Result, err error, killed bool) {
	j.t.Helper()
	rec, unread := j.runner().Journal.Load(context.Background(), "pv1")
	if unread != nil {
		j.t.Fatal(unread)
	}
	pv, unfinished := j.volume(), rec != nil && rec.Unfinished()
	if pv == nil && (rec == nil || !slices.Contains([]journal.Stage{journal.Deleting, journal.Deleted, journal.Stopped}, rec.Stage)) {
		j.t.Errorf("there is no volume, and the journal has %+v", rec)
	}
	why := came.Why
	if err != nil {
		why += err.Error()
	}
	if came.Outcome != migrate.Done && came.Outcome != "" && why == "" || strings.Contains(why, "%!") {
		j.t.Errorf("%s says %q", came.Outcome, why)
	}
	if killed {
		return
	}
	wrong := false
	switch came.Outcome {
	case migrate.Done:
		wrong = unfinished || pv == nil || err != nil
	case migrate.PutBack:
		wrong = unfinished || pv == nil || (pv.Spec.FlexVolume == nil) == (came.Direction == journal.ToFlexVolume)
	case migrate.Left, migrate.Undecided: // as it was
		wrong = pv == nil && command == "apply" || unfinished && command == "apply"
	case migrate.Unfinished, migrate.Interrupted:
		wrong = !unfinished
	case "":
		wrong = err == nil && (unfinished || command == "apply")
	}
	if wrong {
		stage := journal.Stage("nothing")
		if rec != nil {
			stage = rec.Stage
		}
		j.t.Errorf("%s ends with %s (%s), the journal has %s, and is there a volume: %t", command, came.Outcome, why, stage, pv != nil)
	}
}

// left wants everything but the volume to be what it was before.
func (j *journey) left(c cell, was *corev1.Pod, base *journey, evictions int) {
	j.t.Helper()
	if !equality.Semantic.DeepEqual(read(j.api, objects.PersistentVolumes(), "", "pv2"), read(base.api, objects.PersistentVolumes(), "", "pv2")) ||
		!equality.Semantic.DeepEqual(read(j.api, objects.Claims(), "shop", "other"), read(base.api, objects.Claims(), "shop", "other")) {
		j.t.Error("another volume or claim is not what it was")
	}
	s := c.scene
	if evictions > 1 || evictions > 0 && s.mode != journal.Rolling {
		j.t.Errorf("pods are evicted %d times", evictions)
	}
	if s.mode == journal.Offline || !s.pod {
		return
	}
	pod := read(j.api, objects.Pods(), "shop", "orders-0")
	if pod == nil || pod.Spec.NodeName == "" || pod.UID != was.UID && (s.mode == journal.Live || s.command == "rollback") {
		j.t.Errorf("the pod is %+v", pod)
	}
	if va := read(j.api, objects.VolumeAttachments(), "", objects.AttachmentName("vol-1", "disk.csi.example.com", "node-1")); va == nil || !va.Status.Attached {
		j.t.Errorf("the VolumeAttachment is %+v", va)
	}
	if pv := j.volume(); pv != nil && pv.Spec.CSI != nil && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && c.fault.Name != "policy" {
		j.t.Errorf("it has policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
	}
}
