package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMapCSIDrivers: with --kubeconfig the CSIDriver objects of the cluster decide.
func TestMapCSIDrivers(t *testing.T) {
	const pvs = "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: example.com/disk, options: {volumeID: x}}}\n"
	tests := []struct{ items, attached, note string }{
		{"", "VolumeAttachment", "is not in the cluster: install the CSI driver first"},
		{`{"metadata": {"name": "disk.csi.example.com"}, "spec": {"attachRequired": true}}`, "VolumeAttachment", ""},
		{`{"metadata": {"name": "disk.csi.example.com"}, "spec": {"attachRequired": false}}`, "-", ""},
	}
	for _, tt := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/storage.k8s.io/v1/csidrivers" {
				t.Errorf("asks for %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind": "CSIDriverList", "apiVersion": "storage.k8s.io/v1", "metadata": {}, "items": [%s]}`, tt.items)
		}))
		defer server.Close()
		kubeconfig := write(t, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\nclusters: [{name: x, cluster: {server: '"+server.URL+"'}}]\n")
		var out, errs bytes.Buffer
		code := run([]string{"map", "--config", write(t, oneDriver), "--kubeconfig", kubeconfig, "-f", "-", "-o", "wide"}, environment{in: strings.NewReader(pvs), out: &out, err: &errs})
		if code != 0 || !strings.Contains(errs.String(), tt.note) || tt.note == "" && errs.Len() > 0 {
			t.Errorf("status %d: %s", code, errs.String())
		}
		row := strings.Fields(strings.Split(out.String(), "\n")[1])
		if got := row[len(row)-2]; got != tt.attached {
			t.Errorf("%s: attached by %s, want %s", tt.items, got, tt.attached)
		}
	}
}

// TestMapFiles: volumes of a directory and of a stream with separated JSON belong together.
func TestMapFiles(t *testing.T) {
	dir := t.TempDir()
	const pv = `{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "%s"}, "spec": {"flexVolume": {"driver": "example.com/disk", "options": {"volumeID": "%[1]s"}}}}`
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), fmt.Appendf(nil, pv, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdin := fmt.Sprintf(pv, "c") + "\n---\n" + fmt.Sprintf(pv, "d") + "\n"
	var out, errs strings.Builder
	if code := run([]string{"map", "--config", write(t, oneDriver), "-f", dir, "-f", "-", "-o", "name"}, environment{in: strings.NewReader(stdin), out: &out, err: &errs}); code != 0 {
		t.Fatalf("%d, %s", code, errs.String())
	}
	if names := strings.Fields(out.String()); len(names) != 4 {
		t.Errorf("%q", names)
	}
}
