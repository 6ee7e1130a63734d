package controlplane

import (
	"encoding/json"
	"net/http"

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

	used int
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

// answer is the one that the API server would give.
func (f *Fault) answer(w http.ResponseWriter) {
	if f.Code == 0 {
		panic(http.ErrAbortHandler) // closes the connection
	}
	reasons := map[int]metav1.StatusReason{
		http.StatusConflict: metav1.StatusReasonConflict, http.StatusGone: metav1.StatusReasonExpired,
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
