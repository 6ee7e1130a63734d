package distribution_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// TestTable: what is relied upon, by overlays that are called like an entry, by
// commands that take the directories as they are, and by people.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range distribution.All() {
		if seen[d.Name] {
			t.Errorf("%s is there twice", d.Name)
		}
		seen[d.Name] = true
		if d.Name != strings.ToLower(d.Name) || strings.Trim(d.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q is no name for a directory", d.Name)
		}
		for _, dir := range []string{d.PluginDir, d.KubeletDir} {
			if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
				t.Errorf("%s: %q is not an absolute, clean path", d.Name, dir)
			}
		}
		if d.Title == "" || d.Source == "" {
			t.Errorf("%s lacks title or source", d.Name)
		}
		if d.Trap != "" && !strings.HasSuffix(d.Trap, ".") {
			t.Errorf("%s: the trap is no sentence: %q", d.Name, d.Trap)
		}
		if got, err := distribution.Get(d.Name); err != nil || got != d {
			t.Errorf("Get(%q) = %v, %v", d.Name, got, err)
		}
	}
}

func TestGetUnknown(t *testing.T) {
	_, err := distribution.Get("nowhere")
	if err == nil || !strings.Contains(err.Error(), "kubeadm, ack, ") {
		t.Errorf("error %v does not name the distributions", err)
	}
}

func TestPluginDirs(t *testing.T) {
	dirs := distribution.PluginDirs()
	if dirs[0] != distribution.DefaultPluginDir {
		t.Errorf("the first is %s", dirs[0])
	}
	for _, d := range distribution.All() {
		if !slices.Contains(dirs, d.PluginDir) {
			t.Errorf("%s of %s is not among %s", d.PluginDir, d.Name, dirs)
		}
	}
	if old := "/usr/lib/kubernetes/kubelet-plugins/volume/exec"; !slices.Contains(dirs, old) {
		t.Errorf("%s is not among %s", old, dirs)
	}
	slices.Sort(dirs)
	if len(slices.Compact(slices.Clone(dirs))) != len(dirs) {
		t.Errorf("some are there twice: %s", dirs)
	}
}
