package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A T is a scenario that runs. Its methods fail the test instead of returning an
// error.
type T struct {
	*testing.T
	*cluster
	// Namespace is the scenario's own.
	Namespace string
	// after is what end does when nothing is in use any more.
	after []func()

	mu      sync.Mutex
	notes   []string
	volumes []*volume
	pods    map[types.UID]string // all that there ever were
}

// begin gives a scenario its namespace, and looks at its end what it has left.
func (c *cluster) begin(t *testing.T) *T {
	t.Helper()
	s := &T{T: t, cluster: c, Namespace: namespaceOf(t.Name()), pods: map[types.UID]string{}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	_, err := c.client.CoreV1().Namespaces().Create(s.ctx(), namespace, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(s.end)
	s.wait("the default ServiceAccount", func() error {
		_, err := c.client.CoreV1().ServiceAccounts(s.Namespace).Get(s.ctx(), "default", metav1.GetOptions{})
		return err
	})
	return s
}

// ctx lives on in cleanups, other than the test's own.
func (t *T) ctx() context.Context { return context.WithoutCancel(t.Context()) }

// must fails the scenario if there is an error.
func (t *T) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait tries something until it works, and fails the scenario if it never does.
func (t *T) wait(what string, try func() error) {
	t.Helper()
	if err := retry(t.patience, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// note adds a figure, or what else people want to know, to the table.
func (t *T) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// end takes away what the scenario has made, as users would: pods, then claims
// and PersistentVolumes, then what is in the storage system. What is left after
// that has leaked.
func (t *T) end() {
	if t.Failed() {
		t.keepArtefacts() // while it is all there
	}
	failed := t.Failed()
	t.deletePods()
	for _, v := range t.volumes {
		t.deleteVolume(v)
	}
	t.wantNothingLeft()
	for _, v := range t.volumes {
		t.check(v.deleteDisk())
	}
	for _, f := range t.after {
		f()
	}
	err := t.client.CoreV1().Namespaces().Delete(t.ctx(), t.Namespace, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		t.check(err)
	}
	if t.Failed() && !failed {
		t.keepArtefacts()
	}
}

// check is must for cleanups, which go on.
func (t *T) check(err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// deletePods deletes all pods of the scenario, and waits until they are gone.
func (t *T) deletePods() {
	t.Helper()
	pods := t.client.CoreV1().Pods(t.Namespace)
	t.check(pods.DeleteCollection(t.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	// A full node takes its time, on a busy machine above all.
	t.mu.Lock()
	patience := t.patience + time.Duration(len(t.pods))*2*time.Second
	t.mu.Unlock()
	t.check(retry(patience, func() error {
		list, err := pods.List(t.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		return stillThere(list.Items)
	}))
}
