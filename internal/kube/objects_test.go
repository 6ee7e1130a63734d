package kube

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestLimit: migrations of thousands of volumes made as many requests as they could.
func TestLimit(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "` + server.URL + `"}}], "users": [{"name": "u", "user": {}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Options{Kubeconfig: kubeconfig, QPS: 20, Burst: 2})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 6 {
		if _, err := objects.Nodes().Get(t.Context(), c.Objects(), "", "node-1"); err != nil {
			t.Log(err)
		}
	}
	if took := time.Since(began); took < 180*time.Millisecond { // four of them wait for 50 ms
		t.Errorf("6 requests took %s", took)
	}
}
