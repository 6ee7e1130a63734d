package controlplane

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestPlane(t *testing.T) {
	p := Start(t)
	p.StartControllerManager()
	p.Node("node-1", NodeDriver{Name: "disk.example.com", NodeID: "id-1", Count: 3})
	p.ServiceAccount("default", "daemon")
	token := p.ServiceAccountToken(p.Pod("default", "daemon", "node-1", "daemon"))

	t.Run("service account", func(t *testing.T) {
		p := p.With(t)
		client := p.Client(token)
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("without rights: %v, want Forbidden", err)
		}
	})
	t.Run("manifests", func(t *testing.T) {
		p := p.With(t)
		for _, file := range []string{"rbac/node.yaml", "rbac/controller.yaml", "policy/attachments.yaml", "policy/tokens.yaml"} {
			p.Apply("../../install/" + file)
		}
	})
	t.Run("restart", func(t *testing.T) {
		for _, part := range []*Part{p.ETCD, p.APIServer} {
			if err := part.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		node, err := p.Admin().StorageV1().CSINodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil || len(node.Spec.Drivers) != 1 || *node.Spec.Drivers[0].Allocatable.Count != 3 {
			t.Errorf("after a restart: %v, %v", node, err)
		}
	})
	t.Run("proxy", func(t *testing.T) { testProxy(t, p.With(t)) })
}

func testProxy(t *testing.T, p *Plane) {
	x := p.Proxy()
	config, err := clientcmd.BuildConfigFromFlags("", x.Kubeconfig(Admin))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	get := func() error {
		_, err := nodes.Get(t.Context(), "node-1", metav1.GetOptions{})
		return err
	}
	if err := get(); err != nil {
		t.Errorf("through the proxy: %v", err)
	}
	if got := x.Requests(); len(got) != 1 || got["get nodes"] != 1 {
		t.Errorf("counted %v, want one get nodes", got)
	}
	x.Away()
	if err := get(); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("away: %v, want no answer", err)
	}
	x.Back()
	x.Fail(Fault{Verb: "get", Resource: "nodes", Code: 409, Times: 1})
	if err := get(); !apierrors.IsConflict(err) {
		t.Errorf("with a fault: %v, want a conflict", err)
	}
	if err := get(); err != nil {
		t.Errorf("after the fault: %v", err)
	}
	x.Fail(Fault{Verb: "delete", Resource: "nodes", Code: 500, Times: 1, After: true})
	if err := nodes.Delete(t.Context(), "node-1", metav1.DeleteOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("an answer that gets lost: %v, want an internal error", err)
	}
	if err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("what was done although it failed: %v, want NotFound", err)
	}
	testMoment(t, x, client)
	testWatch(t, x, client)
}

func testMoment(t *testing.T, x *Proxy, client kubernetes.Interface) {
	namespaces := client.CoreV1().Namespaces()
	x.Trace()
	for after, want := range map[bool]bool{false: false, true: true} {
		name := fmt.Sprintf("after-%t", after)
		var happened int
		x.At(&Moment{N: 2, After: after, Fits: Request.Changes, Then: func() { happened++ }})
		for _, o := range []metav1.CreateOptions{{DryRun: []string{metav1.DryRunAll}}, {}} { // the first changes nothing
			_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-first"}}, o)
			if err != nil {
				t.Error(err)
			}
		}
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil || happened != 1 {
			t.Errorf("%s: %v, and it happened %d times", name, err, happened)
		}
		_, err = namespaces.Get(t.Context(), name, metav1.GetOptions{})
		if done := err == nil; done != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	trace := x.Trace()
	want := Request{Verb: "create", Resource: "namespaces", DryRun: true}
	if len(trace) != 8 || trace[0] != want || trace[3] != (Request{Verb: "get", Resource: "namespaces", Name: "after-false"}) && trace[3].Name != "after-true" {
		t.Errorf("%+v", trace)
	}
}

func testWatch(t *testing.T, x *Proxy, client kubernetes.Interface) {
	namespaces := client.CoreV1().Namespaces()
	w, err := namespaces.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Object == nil {
		t.Error("a watch without events")
	}
	x.CutWatches()
	for range w.ResultChan() { // ends
	}
	x.Fail(Fault{Verb: "watch", Code: 410, Times: 1})
	if _, err := namespaces.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch that expired: %v", err)
	}
}
