package objects_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// serve is an API server that gives one answer. client-go's fakes would not do: they have no
// client that repeats requests.
func serve(t *testing.T, answer http.HandlerFunc) (*objects.Client, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(objects.WithoutRetries)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &objects.Client{Dynamic: client}, &requests
}

func pv() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": "pv1"}}}
}

// TestOnce: client-go repeats a request by itself where the answer has a Retry-After. One that
// changes something is made once.
func TestOnce(t *testing.T) {
	volumes := objects.PersistentVolumes().Resource
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable} {
		for name, change := range map[string]func(context.Context, *objects.Client) error{
			"create": func(ctx context.Context, c *objects.Client) error { _, err := c.Create(ctx, volumes, pv()); return err },
			"update": func(ctx context.Context, c *objects.Client) error { _, err := c.Update(ctx, volumes, pv()); return err },
			"patch": func(ctx context.Context, c *objects.Client) error {
				_, err := c.Patch(ctx, volumes, "", "pv1", types.MergePatchType, []byte(`{}`))
				return err
			},
			"delete": func(ctx context.Context, c *objects.Client) error {
				return c.Delete(ctx, volumes, "", "pv1", metav1.Preconditions{})
			},
			"evict": func(ctx context.Context, c *objects.Client) error { return c.Evict(ctx, "shop", "pod", "uid", false) },
		} {
			c, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":"InternalError","message":"later"}`, code)
			})
			err := change(t.Context(), c)
			if n := requests.Load(); n != 1 || objects.OutcomeOf(err) != objects.Unknown {
				t.Errorf("%s, answered %d: %d requests, outcome %d (%v)", name, code, n, objects.OutcomeOf(err), err)
			}
		}
	}
}

// TestStrict: a field that the API server does not know must not be dropped in silence.
func TestStrict(t *testing.T) {
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if v := r.URL.Query().Get("fieldValidation"); v != "Strict" {
			t.Errorf("%s %s: fieldValidation %q", r.Method, r.URL, v)
		}
		_ = json.NewEncoder(w).Encode(pv().Object)
	})
	volumes := objects.PersistentVolumes().Resource
	_, err := c.Create(t.Context(), volumes, pv())
	_, _, dryErr := c.DryRunCreate(t.Context(), volumes, pv())
	_, patchErr := c.Patch(t.Context(), volumes, "", "pv1", types.JSONPatchType, []byte(`[]`))
	if err := errors.Join(err, dryErr, patchErr); err != nil || requests.Load() != 3 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
}

// TestPages: a list is read to its end.
func TestPages(t *testing.T) {
	c, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := ""
		if r.URL.Query().Get("continue") == "" {
			next = "more"
		}
		fmt.Fprintf(w, `{"kind":"PersistentVolumeList","apiVersion":"v1","metadata":{"continue":%q},"items":[{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"pv"}}]}`, next)
	})
	all, err := objects.PersistentVolumes().List(t.Context(), c, "", metav1.ListOptions{})
	if err != nil || len(all) != 2 || requests.Load() != 2 {
		t.Errorf("%d volumes by %d requests, %v", len(all), requests.Load(), err)
	}
}

// TestAdvice: "Unauthorized" and "etcdserver: leader changed" reached the operator as they were.
// What is worth another try says so, and never reads as a refusal.
func TestAdvice(t *testing.T) {
	volumes := objects.PersistentVolumes().Resource
	for _, test := range []struct {
		code                int
		reason, text, wants string
	}{
		{401, "Unauthorized", "Unauthorized", "a retry may succeed; if the token or certificate has expired, log in again"},
		{429, "TooManyRequests", "the server has received too many requests", "the API server is away or busy: a retry may succeed"},
		{500, "", "etcdserver: leader changed", "the API server is away or busy: a retry may succeed"},
		{500, "InternalError", `Internal error occurred: failed calling webhook "w.example.com": Post: connection refused`, "check the pods of this webhook: a retry may succeed when they answer"},
		{504, "Timeout", "Timeout: request did not complete within requested timeout", "a retry may succeed"},
		{409, "Conflict", "the object has been modified", "another client has changed the object: a retry reads it again"},
		{422, "Invalid", "the server rejected our request due to an error in our request", "another client has changed the object: a retry reads it again"},
		{403, "Forbidden", `User "eve" cannot create resource "persistentvolumes"`, "grant this user the right (docs/rbac.md)"},
		{403, "Forbidden", "ValidatingAdmissionPolicy 'p' denied request: no", "denied request: no"},
	} {
		c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.code)
			_ = json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(test.code), Reason: metav1.StatusReason(test.reason), Message: test.text})
		})
		_, err := c.Create(t.Context(), volumes, pv())
		if got := fmt.Sprint(err); !strings.HasPrefix(got, "create persistentvolumes pv1: "+test.text) || !strings.HasSuffix(got, test.wants) {
			t.Errorf("%d %s: %s", test.code, test.text, got)
		}
	}
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err := c.Create(t.Context(), volumes, pv()); !strings.HasSuffix(fmt.Sprint(err), "a retry may succeed") {
		t.Error(err)
	}
}

// TestOutcomeOf: an error that does not say that nothing was changed is never taken for one
// that does.
func TestOutcomeOf(t *testing.T) {
	volumes := objects.PersistentVolumes().Resource
	status := func(code int, reason, more string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"m"%s}`, code, reason, more)
	}
	for name, test := range map[string]struct {
		code int
		body string
		want objects.Outcome
	}{
		"not found":              {404, status(404, "NotFound", `,"details":{"name":"pv1","kind":"persistentvolumes"}`), objects.Gone},
		"exists":                 {409, status(409, "AlreadyExists", `,"details":{"name":"pv1","kind":"persistentvolumes"}`), objects.Exists},
		"another exists":         {409, status(409, "AlreadyExists", `,"details":{"name":"pv2","kind":"persistentvolumes"}`), objects.Refused},
		"conflict":               {409, status(409, "Conflict", ``), objects.Conflict},
		"a test of a JSON patch": {422, status(422, "Invalid", ``), objects.Conflict},
		"another UID":            {422, status(422, "Invalid", `,"details":{"kind":"PersistentVolume","causes":[{"field":"metadata.uid"}]}`), objects.Conflict},
		"invalid":                {422, status(422, "Invalid", `,"details":{"kind":"PersistentVolume","causes":[{"field":"spec.csi"}]}`), objects.Refused},
		"forbidden":              {403, status(403, "Forbidden", ``), objects.Refused},
		"a budget":               {429, status(429, "TooManyRequests", `,"details":{"causes":[{"reason":"DisruptionBudget"}]}`), objects.Refused},
		"two budgets":            {500, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}`, objects.Refused},
		"a webhook's 500":        {500, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"admission webhook \"w.example.com\" denied the request: no"}`, objects.Refused},
		"another leader":         {500, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"etcdserver: leader changed"}`, objects.Unknown},
		"expired":                {410, status(410, "Expired", ``), objects.Unknown},
		"unauthorized":           {401, status(401, "Unauthorized", ``), objects.Unknown},
		"too many requests":      {429, status(429, "TooManyRequests", ``), objects.Unknown},
		"time-out":               {504, status(504, "Timeout", ``), objects.Unknown},
		"internal error":         {500, status(500, "InternalError", ``), objects.Unknown},
		"no JSON":                {502, "Bad Gateway", objects.Unknown},
		"an answer cut off":      {200, `{"kind":"PersistentVolume","apiVersion":"v1","meta`, objects.Unknown},
	} {
		c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.code)
			fmt.Fprint(w, test.body)
		})
		_, err := c.Create(t.Context(), volumes, pv())
		if got := objects.OutcomeOf(err); got != test.want || !strings.HasPrefix(fmt.Sprint(err), "create persistentvolumes pv1: ") {
			t.Errorf("%s: outcome %d, want %d (%v)", name, got, test.want, err)
		}
	}
	c, _ := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err := c.Delete(t.Context(), volumes, "", "pv1", metav1.Preconditions{}); objects.OutcomeOf(err) != objects.Unknown {
		t.Errorf("no answer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, volumes, "", "pv1"); objects.OutcomeOf(err) != objects.Canceled {
		t.Error(err)
	}
	local := apierrors.NewNotFound(volumes.GroupResource(), "not asked for")
	if objects.OutcomeOf(nil) != objects.Done || objects.OutcomeOf(local) != objects.None {
		t.Errorf("nil: %d, %v: %d", objects.OutcomeOf(nil), local, objects.OutcomeOf(local))
	}
}
