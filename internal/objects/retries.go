package objects

import "net/http"

// WithoutRetries wraps the transport of a client that makes each request once. client-go
// repeats a request by itself, also one that changes something, up to ten times when the
// answer has a Retry-After (k8s.io/client-go/rest/with_retry.go, checkWait). The caller,
// which looks at the object before it tries again, would take the answer to the last for
// that to the first. So changing requests get their answers without it.
func WithoutRetries(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(q)
		if response != nil && q.Method != http.MethodGet {
			response.Header.Del("Retry-After")
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
