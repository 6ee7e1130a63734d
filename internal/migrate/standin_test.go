package migrate_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A standin is an API server for thousands of objects: it answers from memory and counts what it
// sends. client-go's fake copies each object of a list, and has neither pages, fields nor a
// history for watches.
type standin struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]*unstructured.Unstructured // by path of the resource, and namespace/name
	history map[string][]change
	changed chan struct{} // closed with each change
	// settle has controllers act on a change; nil: there are none. It has the lock.
	settle func(resource string, o *unstructured.Unstructured, gone bool)
	// deaf are resources of which watches say nothing, refused those that no client may watch.
	deaf, refused string
	// expire ends a watch from a version on, with an error or without; nil: it goes on.
	expire func(to target, name string) (ends, says bool)

	counting sync.Mutex
	requests map[string]int // by verb and resource
	sent     map[string]int // bytes
}

// A change is an event of a watch.
type change struct {
	version   int
	event     metav1.WatchEvent
	namespace string
	name      string
}

func newStandin() *standin {
	return &standin{
		objects: map[string]map[string]*unstructured.Unstructured{}, history: map[string][]change{}, changed: make(chan struct{}),
		requests: map[string]int{}, sent: map[string]int{},
	}
}

// put stores an object, or takes it away, and tells the watches and the controllers.
func (s *standin) put(resource string, o *unstructured.Unstructured, gone bool) {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	}
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]*unstructured.Unstructured{}
	}
	key, kind := o.GetNamespace()+"/"+o.GetName(), "MODIFIED"
	if s.objects[resource][key] == nil {
		kind = "ADDED"
	}
	s.objects[resource][key] = o
	if gone {
		kind = "DELETED"
		delete(s.objects[resource], key)
	}
	if s.settle == nil { // the objects of the beginning
		return
	}
	s.history[resource] = append(s.history[resource], change{version: s.version, event: metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: rawOf(o)}}, namespace: o.GetNamespace(), name: o.GetName()})
	close(s.changed)
	s.changed = make(chan struct{})
	s.settle(resource, o, gone)
}

func rawOf(o *unstructured.Unstructured) []byte {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		panic(err)
	}
	return raw
}

// edit changes an object; it has the lock.
func (s *standin) edit(resource, key string, do func(o *unstructured.Unstructured)) {
	if o := s.objects[resource][key]; o != nil {
		o = o.DeepCopy()
		do(o)
		s.put(resource, o, false)
	}
}

// A counted answer counts its bytes.
type counted struct {
	http.ResponseWriter
	s    *standin
	what string
}

func (c counted) Write(p []byte) (int, error) {
	c.s.counting.Lock()
	c.s.sent[c.what] += len(p)
	c.s.counting.Unlock()
	return c.ResponseWriter.Write(p)
}

func (c counted) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// total returns what was sent until now, and by how many requests. The bytes of what is named are
// left out.
func (s *standin) total(without ...string) (requests, sent int) {
	s.counting.Lock()
	defer s.counting.Unlock()
	for what := range s.requests {
		requests += s.requests[what]
		if !slices.Contains(without, what) {
			sent += s.sent[what]
		}
	}
	return requests, sent
}

// asked returns how often something was asked.
func (s *standin) asked(what string) int {
	s.counting.Lock()
	defer s.counting.Unlock()
	return s.requests[what]
}

// report says what was sent, the biggest first.
func (s *standin) report() string {
	s.counting.Lock()
	defer s.counting.Unlock()
	var b strings.Builder
	for _, what := range slices.SortedFunc(maps.Keys(s.requests), func(a, b string) int { return cmp.Compare(s.sent[b], s.sent[a]) }) {
		fmt.Fprintf(&b, "%10d bytes %6d %s\n", s.sent[what], s.requests[what], what)
	}
	return b.String()
}

func (s *standin) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	to, query := targetOf(q.URL.Path), q.URL.Query()
	what := q.Method
	switch {
	case query.Get("watch") != "":
		what = "WATCH"
	case q.Method == http.MethodGet && to.name == "":
		what = "LIST"
	}
	if query.Get("dryRun") != "" {
		what += " (dry run)"
	}
	what += " " + to.resource.Resource
	if to.subresource != "" {
		what += "/" + to.subresource
	}
	s.counting.Lock()
	s.requests[what]++
	s.counting.Unlock()
	w.Header().Set("Content-Type", "application/json")
	c := counted{w, s, what}
	switch {
	case query.Get("watch") != "":
		s.watch(c, q, to)
	case q.Method == http.MethodGet && to.name == "":
		s.list(c, query, to)
	default:
		s.one(c, q, to)
	}
}

// selected reports whether a list or a watch has an object.
func selected(query url.Values, to target, o *unstructured.Unstructured) bool {
	if to.namespace != "" && o.GetNamespace() != to.namespace {
		return false
	}
	if text := query.Get("labelSelector"); text != "" {
		selector, err := labels.Parse(text)
		if err != nil || !selector.Matches(labels.Set(o.GetLabels())) {
			return false
		}
	}
	name, is := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	return !is || o.GetName() == name
}

// list sends a page.
func (s *standin) list(w http.ResponseWriter, query url.Values, to target) {
	s.mu.Lock()
	all := s.objects[to.resource.Resource]
	version, next := s.version, ""
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil {
		limit = len(all)
	}
	var items []*unstructured.Unstructured
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= query.Get("continue") || !selected(query, to, all[key]) {
			continue
		}
		if len(items) == limit {
			next = items[limit-1].GetNamespace() + "/" + items[limit-1].GetName()
			break
		}
		items = append(items, all[key])
	}
	s.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"%d","continue":%q},"items":[`, version, next)
	for i, o := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(rawOf(o))
	}
	b.WriteString("]}")
	_, _ = w.Write(b.Bytes())
}

// watch sends what has changed since a version, and what changes, for as long as it is asked to.
// It has no bookmarks.
func (s *standin) watch(w counted, q *http.Request, to target) {
	query, e := q.URL.Query(), json.NewEncoder(w)
	if to.resource.Resource == s.refused {
		w.WriteHeader(http.StatusForbidden)
		_ = e.Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden})
		return
	}
	since, err := strconv.Atoi(query.Get("resourceVersion"))
	if name, is := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name="); is && err == nil && s.expire != nil {
		if ends, says := s.expire(to, name); ends {
			if says {
				raw, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
				_ = e.Encode(metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: raw}})
			}
			return
		}
	}
	s.mu.Lock()
	if err != nil { // first as it is
		since = s.version
		for _, o := range s.objects[to.resource.Resource] {
			if selected(query, to, o) {
				_ = e.Encode(metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: rawOf(o)}})
			}
		}
	}
	s.mu.Unlock()
	w.Flush()
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	over := time.After(time.Duration(seconds) * time.Second)
	for {
		s.mu.Lock()
		history, more := s.history[to.resource.Resource], s.changed
		s.mu.Unlock()
		from, _ := slices.BinarySearchFunc(history, since+1, func(c change, v int) int { return cmp.Compare(c.version, v) })
		for _, c := range history[from:] {
			since = c.version
			named := &unstructured.Unstructured{Object: map[string]any{}}
			named.SetNamespace(c.namespace)
			named.SetName(c.name)
			if selected(query, to, named) && to.resource.Resource != s.deaf {
				_ = e.Encode(c.event)
			}
		}
		w.Flush()
		select {
		case <-q.Context().Done():
			return
		case <-over:
			return
		case <-more:
		}
	}
}

// one answers a request about one object.
func (s *standin) one(w http.ResponseWriter, q *http.Request, to target) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	o, code, reason := s.change(q, to, body)
	s.mu.Unlock()
	if reason != "" {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReason(reason), Message: reason,
			Details: &metav1.StatusDetails{Name: nameAsked(o, to), Kind: to.resource.Resource},
		})
		return
	}
	if strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadata") {
		o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o.Object["metadata"]}}
	}
	_, _ = w.Write(rawOf(o))
}

func nameAsked(o *unstructured.Unstructured, to target) string {
	if to.name == "" && o != nil {
		return o.GetName()
	}
	return to.name
}

// change makes a request; it has the lock. A reason says why it does not.
func (s *standin) change(q *http.Request, to target, body []byte) (o *unstructured.Unstructured, code int, reason string) {
	resource, dry := to.resource.Resource, q.URL.Query().Get("dryRun") != ""
	if q.Method == http.MethodPost {
		return s.create(to, body, dry)
	}
	old := s.objects[resource][to.namespace+"/"+to.name]
	if old == nil {
		return nil, http.StatusNotFound, "NotFound"
	}
	switch q.Method {
	case http.MethodGet:
		return old, http.StatusOK, ""
	case http.MethodDelete:
		return s.remove(resource, old, body)
	case http.MethodPut:
		o = &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(body); err != nil || o.GetResourceVersion() != old.GetResourceVersion() {
			return nil, http.StatusConflict, "Conflict"
		}
	case http.MethodPatch:
		if o = patched(old, q.Header.Get("Content-Type"), body); o == nil {
			return nil, http.StatusConflict, "Conflict"
		}
	}
	if !dry {
		s.put(resource, o, o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0)
	}
	return o, http.StatusOK, ""
}

// patched is an object with a patch; nil: it does not fit. Of JSON patches it knows what a
// migration sends.
func patched(old *unstructured.Unstructured, kind string, body []byte) *unstructured.Unstructured {
	o := old.DeepCopy()
	if kind == string(types.MergePatchType) {
		var patch map[string]any
		if json.Unmarshal(body, &patch) != nil {
			return nil
		}
		mergePatch(o.Object, patch)
	} else {
		var operations []struct {
			Op, Path string
			Value    any
		}
		if json.Unmarshal(body, &operations) != nil {
			return nil
		}
		for _, do := range operations {
			path := strings.Split(do.Path, "/")[1:]
			is, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
			switch {
			case do.Op == "test" && fmt.Sprint(is) != fmt.Sprint(do.Value):
				return nil
			case do.Op == "remove":
				unstructured.RemoveNestedField(o.Object, path...)
			}
		}
	}
	if o.GetUID() != old.GetUID() || o.GetResourceVersion() != old.GetResourceVersion() {
		return nil
	}
	return o
}

func mergePatch(into, patch map[string]any) {
	for key, value := range patch {
		sub, isMap := value.(map[string]any)
		there, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			mergePatch(there, sub)
		default:
			into[key] = value
		}
	}
}

func (s *standin) create(to target, body []byte, dry bool) (*unstructured.Unstructured, int, string) {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(body); err != nil {
		return nil, http.StatusBadRequest, "BadRequest"
	}
	switch o.GetKind() {
	case "SelfSubjectAccessReview":
		_ = unstructured.SetNestedField(o.Object, true, "status", "allowed")
		return o, http.StatusCreated, ""
	case "PersistentVolume":
		_ = unstructured.SetNestedField(o.Object, "Available", "status", "phase")
		o.SetFinalizers([]string{"kubernetes.io/pv-protection"})
	}
	if s.objects[to.resource.Resource][to.namespace+"/"+o.GetName()] != nil {
		return o, http.StatusConflict, "AlreadyExists"
	}
	o.SetCreationTimestamp(metav1.NewTime(time.Unix(0, 0)))
	if !dry {
		s.put(to.resource.Resource, o, false)
	}
	return o, http.StatusCreated, ""
}

func (s *standin) remove(resource string, old *unstructured.Unstructured, body []byte) (*unstructured.Unstructured, int, string) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return nil, http.StatusBadRequest, "BadRequest"
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
		return nil, http.StatusConflict, "Conflict"
	}
	o := old.DeepCopy()
	if len(options.DryRun) == 0 {
		o.SetDeletionTimestamp(new(metav1.Now()))
		s.put(resource, o, len(o.GetFinalizers()) == 0)
	}
	return o, http.StatusOK, ""
}
