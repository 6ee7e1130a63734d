package controlplane

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

// A Proxy is a way to the API server that counts, delays and fails.
type Proxy struct {
	p       *Plane
	address string
	forward *httputil.ReverseProxy

	mu       sync.Mutex
	server   *http.Server // nil: away
	delay    time.Duration
	faults   []*Fault
	counts   map[string]int
	trace    []Request
	moment   *Moment
	meet     func(Request) *Fault
	answers  map[string]string // by path
	watches  map[int]context.CancelFunc
	watchNum int
}

// Proxy starts one.
func (p *Plane) Proxy() *Proxy {
	p.t.Helper()
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: p.cert.Pool, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 100,
	}
	x := &Proxy{
		p: p, address: p.freeAddress(), counts: map[string]int{}, answers: map[string]string{}, watches: map[int]context.CancelFunc{},
		forward: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", p.api, p.api
			},
			Transport:     transport,
			FlushInterval: -1, // watches
			ErrorLog:      log.New(io.Discard, "", 0),
		},
	}
	x.Back()
	p.t.Cleanup(func() {
		x.Away()
		transport.CloseIdleConnections()
	})
	return x
}

// Kubeconfig writes a kubeconfig for the user of a token, which leads through the proxy.
func (x *Proxy) Kubeconfig(token string) string {
	x.p.t.Helper()
	return x.p.kubeconfig(x.address, token)
}

// Away refuses connections and breaks those that there are.
func (x *Proxy) Away() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.server != nil {
		x.server.Close()
		x.server = nil
	}
}

// Back ends Away.
func (x *Proxy) Back() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.server != nil {
		return
	}
	l, err := net.Listen("tcp", x.address)
	x.p.check(err)
	x.server = &http.Server{
		Handler: x, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{x.p.cert.Pair}, MinVersion: tls.VersionTLS12},
	}
	server := x.server
	go func() { _ = server.ServeTLS(l, "", "") }() // ends with Away
}

// Slow lets each request that comes from now on wait first.
func (x *Proxy) Slow(delay time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.delay = delay
}

// Answer is given to requests for a path from now on, in the place of a kubelet:
// API servers do not go to one at a loopback address
// (pkg/registry/core/node/strategy.go, isProxyableHostname, Kubernetes v1.37.1).
func (x *Proxy) Answer(path, body string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers[path] = body
}

func (x *Proxy) answered(path string) (body string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	body, ok = x.answers[path]
	return body, ok
}

// CutWatches ends all watches that there are, as the API server does from time
// to time.
func (x *Proxy) CutWatches() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, cut := range x.watches {
		cut()
	}
}

// Requests is how often a client asked for what, as in "create
// volumeattachments", and forgets it.
func (x *Proxy) Requests() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	counts := maps.Clone(x.counts)
	clear(x.counts)
	return counts
}

// ServeHTTP is a request of the client.
func (x *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := parse(r)
	fault, delay := x.arrive(request)
	if m := x.now(request); m != nil {
		x.interrupt(m, r, request)
	}
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		return
	}
	if fault != nil {
		x.strike(fault, w, r)
		return
	}
	if body, ok := x.answered(r.URL.Path); ok {
		_, _ = io.WriteString(w, body)
		return
	}
	ctx, end := x.watch(r.Context(), request)
	defer end()
	// A watch that is cut panics with http.ErrAbortHandler, which the server
	// knows: its client sees the end of the connection's stream.
	x.forward.ServeHTTP(w, r.WithContext(ctx))
}

// arrive counts the request and decides what happens to it.
func (x *Proxy) arrive(r Request) (*Fault, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[r.String()]++
	if x.meet != nil {
		if f := x.meet(r); f != nil {
			return f, 0
		}
	}
	for _, f := range x.faults {
		if f.fits(r) {
			return f, x.delay
		}
	}
	return nil, x.delay
}

// watch makes a watch one that CutWatches ends.
func (x *Proxy) watch(ctx context.Context, r Request) (context.Context, func()) {
	if r.Verb != "watch" {
		return ctx, func() {}
	}
	ctx, cut := context.WithCancel(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.watchNum++
	num := x.watchNum
	x.watches[num] = cut
	return ctx, func() {
		cut()
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.watches, num)
	}
}

// nowhere is where an answer goes that gets lost.
type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
