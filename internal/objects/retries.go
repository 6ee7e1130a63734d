package objects

import (
	"context"
	"net/http"
)

// WithoutRetries wraps the transport of a client that makes each request once. client-go
// repeats a request by itself, also one that changes something, up to ten times when the
// answer has a Retry-After (k8s.io/client-go/rest/with_retry.go, checkWait). The caller,
// which looks at the object before it tries again, would take the answer to the last for
// that to the first. So changing requests get their answers without it. It is also what makes
// [Short] work.
func WithoutRetries(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		if q.Context().Value(short{}) != nil {
			q = q.Clone(q.Context())
			q.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
		}
		response, err := next.RoundTrip(q)
		if response != nil && q.Method != http.MethodGet {
			response.Header.Del("Retry-After")
		}
		return response, err
	})
}

// Short has the API server answer requests with no more of an object than its metadata.
func Short(ctx context.Context) context.Context { return context.WithValue(ctx, short{}, true) }

type short struct{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
