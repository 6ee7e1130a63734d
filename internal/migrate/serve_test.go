package migrate_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// serve has the fake answer on loopback, for programs, and returns a kubeconfig. After
// hangUp no request is under way any more.
func (a *api) serve() (kubeconfig string, hangUp func()) {
	a.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(a.handle))
	hangUp = sync.OnceFunc(func() {
		server.CloseClientConnections()
		server.Close()
	})
	a.t.Cleanup(hangUp)
	return writeKubeconfig(a.t, server.URL), hangUp
}

// A target is what a request of a program is about.
type target struct {
	resource                     schema.GroupVersionResource
	namespace, name, subresource string
}

// targetOf reads /api/v1/namespaces/NAMESPACE/pods/NAME/SUBRESOURCE.
func targetOf(path string) (to target) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	next := func() (part string) {
		if len(parts) > 0 {
			part, parts = parts[0], parts[1:]
		}
		return part
	}
	if next() == "apis" {
		to.resource.Group = next()
	}
	to.resource.Version, to.resource.Resource = next(), next()
	if to.resource.Resource == "namespaces" && len(parts) > 1 {
		to.namespace, to.resource.Resource = next(), next()
	}
	to.name, to.subresource = next(), next()
	return to
}

func (a *api) handle(w http.ResponseWriter, q *http.Request) {
	to, query := targetOf(q.URL.Path), q.URL.Query()
	if query.Get("watch") != "" {
		a.watch(w, q, to)
		return
	}
	body, err := io.ReadAll(q.Body)
	var o any
	if err == nil {
		o, err = a.ask(q, to, body, query["dryRun"])
	}
	code := http.StatusOK
	if status := new(apierrors.StatusError); errors.As(err, &status) {
		status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code, o = int(status.ErrStatus.Code), status.ErrStatus
	} else if err != nil {
		code, o = http.StatusInternalServerError, err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func (a *api) ask(q *http.Request, to target, body []byte, dryRun []string) (any, error) {
	c, ctx := a.fake.Resource(to.resource).Namespace(to.namespace), q.Context()
	var subresources []string
	if to.subresource != "" {
		subresources = []string{to.subresource}
	}
	switch q.Method {
	case http.MethodGet:
		if to.name != "" {
			return c.Get(ctx, to.name, metav1.GetOptions{})
		}
		return c.List(ctx, metav1.ListOptions{LabelSelector: q.URL.Query().Get("labelSelector")})
	case http.MethodPost, http.MethodPut:
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(body); err != nil {
			return nil, err
		}
		if q.Method == http.MethodPut {
			return c.Update(ctx, u, metav1.UpdateOptions{DryRun: dryRun})
		}
		return c.Create(ctx, u, metav1.CreateOptions{DryRun: dryRun}, subresources...)
	case http.MethodPatch:
		return c.Patch(ctx, to.name, types.PatchType(q.Header.Get("Content-Type")), body, metav1.PatchOptions{DryRun: dryRun})
	}
	var o metav1.DeleteOptions
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, c.Delete(ctx, to.name, o)
}

// watch tells of what changes, of all objects of a resource, as the fake does.
func (a *api) watch(w http.ResponseWriter, q *http.Request, to target) {
	events, err := a.fake.Resource(to.resource).Namespace(to.namespace).Watch(q.Context(), metav1.ListOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer events.Stop()
	w.Header().Set("Content-Type", "application/json")
	flush := w.(http.Flusher)
	flush.Flush()
	for {
		select {
		case <-q.Context().Done():
			return
		case e := <-events.ResultChan():
			raw, err := json.Marshal(e.Object)
			if err != nil {
				return
			}
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: raw}})
			flush.Flush()
		}
	}
}

// TestTargetOf: a test of the test server.
func TestTargetOf(t *testing.T) {
	for path, want := range map[string]target{
		"/api/v1/persistentvolumes/pv1":                           {schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "", "pv1", ""},
		"/api/v1/namespaces/kube-system":                          {schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "kube-system", ""},
		"/api/v1/namespaces/shop/pods/orders-0/eviction":          {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", "orders-0", "eviction"},
		"/apis/coordination.k8s.io/v1/namespaces/flex2csi/leases": {schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "flex2csi", "", ""},
	} {
		if got := targetOf(path); got != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
}
