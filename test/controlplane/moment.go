package controlplane

import "net/http"

// A Moment is when something is to happen to the client that makes the requests.
type Moment struct {
	// N is the number of the matching request, from 1.
	N int
	// Fits says which are counted; nil: all.
	Fits func(Request) bool
	// After: when the API server has processed the request; the client never gets the
	// answer. Else it is before: the request is not passed on. A watch has no end, and
	// is not passed on either.
	After bool
	// Then is what happens.
	Then func()

	seen int
}

// At has something happen once, at a moment from now on. The last one counts; nil
// forgets it.
func (x *Proxy) At(m *Moment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.moment = m
}

// Trace is all that was asked for since the last time, in its order.
func (x *Proxy) Trace() []Request {
	x.mu.Lock()
	defer x.mu.Unlock()
	trace := x.trace
	x.trace = nil
	return trace
}

// now returns the moment, if it has come with the request.
func (x *Proxy) now(r Request) *Moment {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trace = append(x.trace, r)
	m := x.moment
	if m == nil || m.Fits != nil && !m.Fits(r) {
		return nil
	}
	if m.seen++; m.seen < m.N {
		return nil
	}
	x.moment = nil
	return m
}

// interrupt does not return.
func (x *Proxy) interrupt(m *Moment, r *http.Request, request Request) {
	if m.After && request.Verb != "watch" {
		x.forward.ServeHTTP(nowhere{header: http.Header{}}, r)
	}
	m.Then()
	panic(http.ErrAbortHandler) // closes the connection
}
