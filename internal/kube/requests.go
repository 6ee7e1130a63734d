package kube

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Request is a finished request to the API server, or the start of a watch.
type Request struct {
	Verb     string // get, list, watch, create, delete, …
	Resource string // volumeattachments, serviceaccounts/token, …
	// Code is the HTTP status; 0: there was no answer.
	Code     int
	Duration time.Duration
}

// A ConnectionStatus says whether the API server can be reached.
type ConnectionStatus struct {
	// Asked is false until the first request has finished.
	Asked, Reachable bool
	// Since is when that began.
	Since time.Time
	// LastError is the last error of a connection.
	LastError string
}

// Status returns the current status, without a request.
func (c *Cluster) Status() ConnectionStatus {
	c.requests.mu.Lock()
	defer c.requests.mu.Unlock()
	return c.requests.status
}

// requests observes requests, and has the result of the last one.
type requests struct {
	observe func(Request)

	mu     sync.Mutex
	status ConnectionStatus
}

// wrap wraps a transport with the observer.
func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return &observer{r, next}
}

type observer struct {
	requests *requests
	next     http.RoundTripper
}

func (o *observer) RoundTrip(q *http.Request) (*http.Response, error) {
	begun := time.Now()
	response, err := o.next.RoundTrip(q)
	o.requests.note(q, response, err, begun)
	return response, err
}

// WrappedRoundTripper is for client-go, which cancels a request there if its time is up.
func (o *observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// note records the result of a request. A request that its caller canceled says
// nothing about the API server; a timeout does.
func (r *requests) note(q *http.Request, response *http.Response, err error, begun time.Time) {
	done := Request{Duration: time.Since(begun)}
	done.Verb, done.Resource = classify(q)
	var why string
	switch {
	case err != nil:
		why = err.Error()
	case response.StatusCode >= http.StatusInternalServerError:
		done.Code, why = response.StatusCode, "the API server answers "+response.Status
	default:
		done.Code = response.StatusCode
	}
	if r.observe != nil {
		r.observe(done)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && q.Context().Err() != nil && done.Duration < requestTimeout/2 {
		return
	}
	if reachable := why == ""; !r.status.Asked || reachable != r.status.Reachable {
		r.status.Asked, r.status.Reachable, r.status.Since = true, reachable, begun
	}
	if why != "" {
		r.status.LastError = why
	}
}

// classify returns the verb and the resource of a request from its path: /api/v1/… or
// /apis/GROUP/VERSION/…, with or without namespaces/NAME/ before the resource.
func classify(q *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(q.Method), "/" + strings.Join(parts, "/")
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource = parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	switch q.Method {
	case http.MethodGet:
		switch {
		case q.URL.Query().Get("watch") == "true", q.URL.Query().Get("watch") == "1":
			return "watch", resource
		case len(parts) == 1:
			return "list", resource
		}
		return "get", resource
	case http.MethodPost:
		return "create", resource
	case http.MethodPut:
		return "update", resource
	}
	return strings.ToLower(q.Method), resource // patch, delete
}

// request gives a request its deadline.
func request[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return do(ctx)
}

// getter is a client of objects of one kind.
type getter[T any] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// get requests an object.
func get[T any](ctx context.Context, client getter[T], name string) (T, error) {
	return request(ctx, func(ctx context.Context) (T, error) { return client.Get(ctx, name, metav1.GetOptions{}) })
}
