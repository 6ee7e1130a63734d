package node

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestReleases: a kubelet is told what its release knows. The endpoint of the container
// runtime is a flag or a field, and never both.
func TestReleases(t *testing.T) {
	for version, want := range map[string]struct{ flag, field, cgroups bool }{
		"1.24": {flag: true},
		"1.26": {flag: true},
		"1.27": {field: true},
		"1.30": {field: true},
		"1.31": {field: true, cgroups: true},
		"1.37": {field: true, cgroups: true},
		"":     {field: true, cgroups: true},
	} {
		n := &Node{options: Options{Version: version}, dir: t.TempDir()}
		text, err := n.kubeletConfig()
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatal(err)
		}
		got := want
		got.flag = slices.Contains(n.kubelet().Argv, "--container-runtime-endpoint")
		_, got.field = config["containerRuntimeEndpoint"]
		_, got.cgroups = config["failCgroupV1"]
		if got != want {
			t.Errorf("%q: %+v, want %+v", version, got, want)
		}
	}
}
