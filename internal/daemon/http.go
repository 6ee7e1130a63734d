package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// serveHTTP shows health and metrics on a loopback address.
func (d *Daemon) serveHTTP() (stop func(), err error) {
	if d.HTTPEndpoint == "" {
		return func() {}, nil
	}
	if err := requireLoopback(d.HTTPEndpoint); err != nil {
		return nil, err
	}
	path := d.MetricsPath
	if path == "" {
		path = "/metrics"
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " {}") || path == "/healthz" || path == "/readyz" {
		return nil, fmt.Errorf("--metrics-path %s: want a path of its own, such as /metrics", path)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", d.HTTPEndpoint)
	if err != nil {
		return nil, fmt.Errorf("--http-endpoint: %w", err)
	}
	d.Log.Info("showing health and metrics", "address", l.Addr().String(), "metricsPath", path)
	mux := http.NewServeMux()
	mux.Handle(path, d.Metrics.handler())
	mux.HandleFunc("/healthz", d.healthz)
	mux.HandleFunc("/readyz", d.readyz)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			d.Log.Error("the HTTP endpoint ended", "error", err)
		}
	}()
	return func() { _ = server.Close() }, nil
}

// healthz fails where a restart helps: the socket is gone, or is another's, so
// that nobody can call.
func (d *Daemon) healthz(w http.ResponseWriter, _ *http.Request) {
	if d.phase.Load() == serving {
		if err := d.ownSocket(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = w.Write([]byte("ok\n"))
}

// ownSocket checks that who dials the socket gets to this process.
func (d *Daemon) ownSocket() error {
	if d.Socket == "" {
		return nil // flex2csi serve --controller that only sweeps
	}
	now, err := os.Lstat(d.Socket)
	if err != nil {
		return fmt.Errorf("the socket is gone: %w", err)
	}
	if !os.SameFile(now, d.socketInfo) {
		return fmt.Errorf("%s is not the socket of this process any more", d.Socket)
	}
	return nil
}

// readyz succeeds while calls are answered. A CSI driver that is away does not
// count: calls for the others are answered.
func (d *Daemon) readyz(w http.ResponseWriter, _ *http.Request) {
	switch d.phase.Load() {
	case serving:
		_, _ = w.Write([]byte("ok\n"))
	case draining:
		http.Error(w, "draining", http.StatusServiceUnavailable)
	default:
		http.Error(w, "not serving yet", http.StatusServiceUnavailable)
	}
}

// requireLoopback keeps what the endpoint shows on the node.
func requireLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--http-endpoint %s: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--http-endpoint %s: only a loopback address (127.0.0.1:PORT) is served", address)
	}
	return nil
}
