package migrate_test

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const leaseDuration = 3 * time.Second

func wants(identity string) journal.LockOptions {
	return journal.LockOptions{Namespace: migrate.Namespace, Name: "flex2csi-migrate", Identity: identity, Process: "process of " + identity, Duration: leaseDuration}
}

// through is a way to the API server that can fail.
func (w *world) through() (*objects.Client, *controlplane.Proxy) {
	w.t.Helper()
	x := w.Proxy()
	c := w.clusterAt(x)
	return c, x
}

// testLease: one of two has it, and the next one when that gives it up.
func testLease(w *world) {
	c, ctx := w.admin(), w.t.Context()
	a, err := journal.TakeLock(ctx, c, wants("a"))
	w.check(err)
	w.check(a.Held())
	var holder string
	b := wants("b")
	b.Waiting = func(h string) { holder += h }
	b.Dead = func(string) bool { return false }
	begun := time.Now()
	if l, err := journal.TakeLock(ctx, c, b); !errors.Is(err, journal.ErrLockHeld) || holder != "a" {
		w.t.Fatal(l, err, holder)
	}
	if d := time.Since(begun); d > leaseDuration {
		w.t.Errorf("it took %v to see that a is alive", d)
	}
	for range 40 { // it is renewed
		w.check(a.Held())
		time.Sleep(100 * time.Millisecond)
	}
	w.check(a.Release(ctx))
	begun = time.Now()
	l, err := journal.TakeLock(ctx, c, b)
	w.check(err)
	w.check(l.Held())
	if d := time.Since(begun); d > leaseDuration/2 {
		w.t.Errorf("it took %v to take what was free", d)
	}
	w.check(l.Release(ctx))

	w.ServiceAccount("default", "without-rights")
	powerless := w.cluster(w.ServiceAccountToken(w.Pod("default", "without-rights", "nowhere", "without-rights")))
	_, err = journal.TakeLock(ctx, powerless, wants("c"))
	w.is(err, objects.Refused)
}

// testLeaseOfTheDead: Take waits for its end, unless the holder is known to be
// dead.
func testLeaseOfTheDead(w *world) {
	c, x := w.through()
	ctx := w.t.Context()
	a, err := journal.TakeLock(ctx, c, wants("a"))
	w.check(err)
	x.Away() // as if it had been killed
	begun := time.Now()
	b, err := journal.TakeLock(ctx, w.admin(), wants("b"))
	w.check(err)
	if d := time.Since(begun); d < leaseDuration {
		w.t.Errorf("a was not waited for, but %v", d)
	}
	if err := a.Held(); !errors.Is(err, journal.ErrStale) {
		w.t.Errorf("a still has it: %v", err)
	}
	x.Back()
	testenv.Eventually(w.t, "a knows that it is lost", func() bool { return errors.Is(a.Held(), journal.ErrLost) })
	w.check(b.Held())
	w.check(a.Release(ctx)) // and not b's
	w.check(b.Held())

	o := wants("c")
	o.Dead = func(process string) bool { return process == "process of b" }
	begun = time.Now()
	l, err := journal.TakeLock(ctx, c, o)
	w.check(err)
	if d := time.Since(begun); d > leaseDuration/2 {
		w.t.Errorf("it took %v to take what was that of the dead", d)
	}
	testenv.Eventually(w.t, "b knows that it is lost", func() bool { return errors.Is(b.Held(), journal.ErrLost) })
	w.check(l.Release(ctx))
	w.check(b.Release(ctx))
}

func testLeaseLost(w *world) {
	c, ctx := w.admin(), w.t.Context()
	a, err := journal.TakeLock(ctx, c, wants("a"))
	w.check(err)
	w.check(w.Admin().CoordinationV1().Leases(migrate.Namespace).Delete(ctx, "flex2csi-migrate", metav1.DeleteOptions{}))
	testenv.Eventually(w.t, "a knows that it was deleted", func() bool { return errors.Is(a.Held(), journal.ErrLost) })
	w.check(a.Release(ctx))
}

// testLeaseAway: while the API server does not answer it is not held, and it is
// after, if no other process has taken it. Answers that get lost do not matter.
func testLeaseAway(w *world) {
	c, x := w.through()
	ctx := w.t.Context()
	x.Fail(controlplane.Fault{Resource: "leases", After: true, Times: 2}) // of looking and taking
	a, err := journal.TakeLock(ctx, c, wants("a"))
	w.check(err)
	x.Fail(controlplane.Fault{Verb: "update", Resource: "leases", After: true, Times: 3})
	for range 50 {
		w.check(a.Held())
		time.Sleep(100 * time.Millisecond)
	}
	x.Away()
	testenv.Eventually(w.t, "it is not renewed", func() bool { return errors.Is(a.Held(), journal.ErrStale) })
	x.Back()
	testenv.Eventually(w.t, "it is renewed", func() bool { return a.Held() == nil })
	w.check(a.Release(ctx))
}
