package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errPortTaken says that another process has the address.
var errPortTaken = errors.New("another process has this address")

// serveHTTP serves health and metrics on a loopback address, until stopHTTP. It may be
// called again.
func (d *Daemon) serveHTTP() error {
	if d.HTTPEndpoint == "" || d.http != nil {
		return nil
	}
	if err := requireLoopback(d.HTTPEndpoint); err != nil {
		return err
	}
	path := d.MetricsPath
	if path == "" {
		path = "/metrics"
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " {}") || path == "/healthz" || path == "/readyz" {
		return fmt.Errorf("--metrics-path %s: want a path of its own, such as /metrics", path)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", d.HTTPEndpoint)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("--http-endpoint %s: %w", d.HTTPEndpoint, errPortTaken)
	}
	if err != nil {
		return fmt.Errorf("--http-endpoint: %w", err)
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
	d.http = server
	return nil
}

func (d *Daemon) stopHTTP() {
	if d.http != nil {
		_ = d.http.Close()
	}
}

// healthz fails where a restart helps: the socket no longer exists, or belongs to
// another process, so that no call arrives.
func (d *Daemon) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := d.checkLive(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// readyz succeeds while calls are answered, by this process or by the one that it
// stands by for. A CSI driver that is not available does not count: calls for the others
// are answered.
func (d *Daemon) readyz(w http.ResponseWriter, _ *http.Request) {
	if _, ready, message := d.state(); !ready {
		http.Error(w, message, http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// requireLoopback refuses addresses that other nodes can reach.
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
