package journal_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestTake: a Lease of a holder that renews it is refused, one that has ended or that of a dead
// process is taken, and the one who had it knows.
func TestTake(t *testing.T) {
	f := fake.NewSimpleDynamicClient(scheme.Scheme)
	version := 0
	write := func(a clienttesting.Action) (bool, runtime.Object, error) { // as an API server does
		o := a.(interface{ GetObject() runtime.Object }).GetObject().(*unstructured.Unstructured)
		if was := o.GetResourceVersion(); was != "" && was != strconv.Itoa(version) {
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), o.GetName(), errors.New("changed"))
		}
		version++
		o.SetResourceVersion(strconv.Itoa(version))
		return false, nil, nil
	}
	f.PrependReactor("create", "leases", write)
	f.PrependReactor("update", "leases", write)
	client := &objects.Client{Dynamic: f}
	take := func(identity string, dead bool) (*journal.Lock, error) {
		return journal.TakeLock(t.Context(), client, journal.LockOptions{
			Namespace: "flex2csi", Name: "flex2csi-migrate", Identity: identity, Process: "of " + identity, Duration: time.Second,
			Dead: func(process string) bool { return dead && process == "of eve" },
		})
	}
	gone, err := objects.ToUnstructured(&coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "flex2csi", Name: "flex2csi-migrate"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("gone"), LeaseDurationSeconds: new(int32(1))},
	})
	if err == nil {
		_, err = client.Create(t.Context(), objects.Leases().Resource, gone)
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eve, err := take("eve", false)
	if err != nil || eve.Held() != nil || time.Since(began) < time.Second {
		t.Fatalf("after %s: %v", time.Since(began), err)
	}
	if _, err := take("bob", false); !errors.Is(err, journal.ErrLockHeld) {
		t.Errorf("two have it: %v", err)
	}
	bob, err := take("bob", true)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); !errors.Is(eve.Held(), journal.ErrLost); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not missed: %v", eve.Held())
		}
	}
	if err := errors.Join(eve.Release(t.Context()), bob.Held(), bob.Release(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := take("ann", false); err != nil {
		t.Errorf("it was given back: %v", err)
	}
}
