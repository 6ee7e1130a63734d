package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/flex2csi/flex2csi/test/node"
)

// A gate is a way to the API server, as the administrator. It counts requests, and
// something may happen before one is through, or while its answer is not.
type gate struct {
	forward *httputil.ReverseProxy
	// before is called when a request comes that changes something. If the program that asked
	// has ended when it returns, the API server never sees the request.
	before func(change string)
	// after is called when a request that changes something has been answered,
	// with the method and the resource, before who asked gets to know.
	after func(change string)

	mu       sync.Mutex
	requests int
}

// gate opens one, and returns it with a kubeconfig that leads through it. Through it a path
// has the replacements of paths: old, new, old, new.
func (t *T) gate(paths ...string) (*gate, string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	t.must(err)
	target, err := url.Parse(config.Host)
	t.must(err)
	transport, err := rest.TransportFor(config)
	t.must(err)
	renamed := strings.NewReplacer(paths...)
	g := &gate{forward: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Path = renamed.Replace(r.Out.URL.Path)
			r.SetURL(target)
			r.Out.Host = target.Host
		},
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.must(err)
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until Close
	t.Cleanup(func() {
		t.check(server.Close())
		serving.Wait()
	})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	t.must(writeFile(file, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: "http://%s"}}]
contexts: [{name: gate, context: {cluster: gate}}]
current-context: gate
`, listener.Addr())))
	return g, file
}

// ServeHTTP is a request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	change := changes(r)
	g.mu.Lock()
	g.requests++
	g.mu.Unlock()
	if change != "" && g.before != nil {
		body, err := io.ReadAll(r.Body) // the end of a client shows only after its request
		g.before(change)
		if err != nil || r.Context().Err() != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if change == "" || g.after == nil {
		g.forward.ServeHTTP(w, r)
		return
	}
	held := &answer{header: http.Header{}, code: http.StatusOK}
	g.forward.ServeHTTP(held, r.WithContext(context.WithoutCancel(r.Context())))
	if held.code < http.StatusBadRequest {
		g.after(change)
	}
	maps.Copy(w.Header(), held.header)
	w.WriteHeader(held.code)
	_, _ = io.WriteString(w, held.body.String()) // or who asked has gone
}

// count is how many requests there were since it was asked last.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.requests
	g.requests = 0
	return n
}

// changes says what a request changes of volumes, as in "DELETE persistentvolumes";
// empty: nothing.
func changes(r *http.Request) string {
	if r.Method == http.MethodGet || r.URL.Query().Has("dryRun") {
		return ""
	}
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims", "volumeattachments", "pods"} {
		if strings.Contains(r.URL.Path+"/", "/"+resource+"/") {
			return r.Method + " " + resource
		}
	}
	return ""
}

// An answer is one that has not been given yet.
type answer struct {
	header http.Header
	code   int
	body   strings.Builder
}

// Header is for a ReverseProxy.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader is for a ReverseProxy.
func (a *answer) WriteHeader(code int) { a.code = code }

func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
