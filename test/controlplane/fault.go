package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Fault is what a Proxy does to a request instead of passing it on.
type Fault struct {
	// Verb and Resource say to which ("create", "volumeattachments"); empty: any.
	Verb, Resource string
	// Code is the answer: 409, 410, 429, 500, 503, … Zero breaks the connection.
	Code int
	// Times is how often; zero: until [Proxy.Heal].
	Times int
	// After has the API server do it first: only the answer is another one.
	After bool
	// Delay is how late the request comes to the API server, also if its client has given it up
	// meanwhile. The answer is then the API server's own.
	Delay time.Duration
	// Then, if there is one, happens before the answer.
	Then func()

	used int
}

// Meet has a function say what happens to each request from now on, before all other faults.
// Where it returns nil, they decide; nil: it is forgotten.
func (x *Proxy) Meet(f func(Request) *Fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.meet = f
}

// Fail injects faults from now on. The first one that fits a request and has
// uses left decides.
func (x *Proxy) Fail(faults ...Fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range faults {
		x.faults = append(x.faults, &f)
	}
}

// Heal ends all faults and delays.
func (x *Proxy) Heal() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.faults, x.delay = nil, 0
}

func (f *Fault) fits(r Request) bool {
	if f.Verb != "" && f.Verb != r.Verb || f.Resource != "" && f.Resource != r.Resource || f.Times > 0 && f.used >= f.Times {
		return false
	}
	f.used++
	return true
}

// strike has a fault happen to a request.
func (x *Proxy) strike(f *Fault, w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(context.WithoutCancel(r.Context()))
	switch {
	case f.Delay > 0:
		body, err := io.ReadAll(r.Body) // which the client takes away when it gives up
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		time.Sleep(f.Delay)
		x.forward.ServeHTTP(w, r)
		return
	case f.After:
		x.forward.ServeHTTP(nowhere{header: http.Header{}}, r)
	}
	if f.Then != nil {
		f.Then()
	}
	f.answer(w)
}

// answer is the one that the API server would give.
func (f *Fault) answer(w http.ResponseWriter) {
	if f.Code == 0 {
		panic(http.ErrAbortHandler) // closes the connection
	}
	reasons := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}
	w.Header().Set("Content-Type", "application/json")
	if f.Code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may have left
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(f.Code), Reason: reasons[f.Code], Message: "injected by the test",
	})
}
