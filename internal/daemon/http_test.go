package daemon

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHealth: healthz fails where a restart helps, readyz where a call would
// have to wait.
func TestHealth(t *testing.T) {
	d := &Daemon{Options: Options{Socket: filepath.Join(t.TempDir(), "s")}}
	makeSocket := func() {
		t.Helper()
		if err := os.WriteFile(d.Socket+".new", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(d.Socket+".new", d.Socket); err != nil {
			t.Fatal(err)
		}
	}
	makeSocket()
	var err error
	if d.socketInfo, err = os.Lstat(d.Socket); err != nil {
		t.Fatal(err)
	}
	check := func(when string, healthy, ready int) {
		t.Helper()
		for name, tt := range map[string]struct {
			handler http.HandlerFunc
			want    int
		}{"healthz": {d.healthz, healthy}, "readyz": {d.readyz, ready}} {
			w := httptest.NewRecorder()
			tt.handler(w, httptest.NewRequest(http.MethodGet, "/"+name, nil))
			if w.Code != tt.want || (w.Code == http.StatusOK) != (w.Body.String() == "ok\n") {
				t.Errorf("%s, %s: %d %s, want %d", when, name, w.Code, strings.TrimSpace(w.Body.String()), tt.want)
			}
		}
	}
	const ok, no = http.StatusOK, http.StatusServiceUnavailable
	check("starting", ok, no)
	d.phase.Store(serving)
	check("serving", ok, ok)
	kept := d.Socket + ".kept" // so that its inode is not used again
	if err := os.Rename(d.Socket, kept); err != nil {
		t.Fatal(err)
	}
	check("without a socket", no, ok)
	makeSocket()
	check("with the socket of another", no, ok)
	d.phase.Store(draining)
	check("draining", ok, no)
}

func TestLoopbackOnly(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.8.9.1:80": true, "[::1]:80": true, "localhost:80": true,
		"0.0.0.0:80": false, ":80": false, "10.0.0.1:80": false, "[::]:80": false, "node:80": false, "127.0.0.1": false,
	} {
		if err := requireLoopback(address); (err == nil) != want {
			t.Errorf("%s: %v, want allowed=%t", address, err, want)
		}
	}
}
