package kubeletdir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for path, want := range map[string]Place{
		"/var/lib/kubelet/pods/uid-1/volumes/example.com~disk/pv-1": {
			Root: "/var/lib/kubelet", Driver: "example.com/disk", Volume: "pv-1", PodUID: "uid-1",
		},
		"/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-1": {
			Root: "/var/lib/kubelet", Driver: "example.com/disk", Volume: "pv-1",
		},
		// Other distributions, and odd names.
		"/var/lib/k0s/kubelet/pods/u/volumes/a~b/c":                      {Root: "/var/lib/k0s/kubelet", Driver: "a/b", Volume: "c", PodUID: "u"},
		"/var/snap/microk8s/common/var/lib/kubelet/pods/u/volumes/a~b/c": {Root: "/var/snap/microk8s/common/var/lib/kubelet", Driver: "a/b", Volume: "c", PodUID: "u"},
		"/pods/u/volumes/a~b/c":                                          {Root: "/", Driver: "a/b", Volume: "c", PodUID: "u"},
		"/plugins/kubernetes.io/flexvolume/a/b/mounts/c":                 {Root: "/", Driver: "a/b", Volume: "c"},
		"/k/pods/u/volumes/a~b~c/ d":                                     {Root: "/k", Driver: "a/b~c", Volume: " d", PodUID: "u"},
		"/k/pods/pods/volumes/volumes~volumes/volumes":                   {Root: "/k", Driver: "volumes/volumes", Volume: "volumes", PodUID: "pods"},
		// A kubelet's directory below another's, as in kind.
		"/k/pods/u/volumes/x~y/z/pods/v/volumes/a~b/c": {Root: "/k/pods/u/volumes/x~y/z", Driver: "a/b", Volume: "c", PodUID: "v"},
	} {
		got, err := Parse(path)
		if err != nil || got != want {
			t.Errorf("Parse(%s) = %+v, %v, want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{
		"", "/", "/mnt", "pods/u/volumes/a~b/c", "k/plugins/kubernetes.io/flexvolume/a/b/mounts/c",
		"/k/pods/u/volumes/a~b", "/k/pods/u/volumes/a~b/", "/k/pods//volumes/a~b/c", "/k/pods/u/volumes/ab/c",
		"/k/pods/u/volumes/~b/c", "/k/pods/u/volumes/a~/c", "/k/pods/u/volume/a~b/c", "/k/pod/u/volumes/a~b/c",
		"/k/pods/u/volumes/kubernetes.io~csi/c/mount", "/k/pods/u/volume-subpaths/a/b/c",
		"/k/plugins/kubernetes.io/flexvolume/a/b/mounts/", "/k/plugins/kubernetes.io/flexvolume/a/mounts/c",
		"/k/plugins/kubernetes.io/flexvolume//b/mounts/c", "/k/plugins/kubernetes.io/flexvolume/a//mounts/c",
		"/k/plugins/kubernetes.io/csi/a/b/mounts/c",
	} {
		got, err := Parse(path)
		if err == nil || got != (Place{}) {
			t.Errorf("Parse(%q) = %+v, %v, want an error", path, got, err)
		} else if !strings.Contains(err.Error(), podShape) || !strings.Contains(err.Error(), deviceShape) {
			t.Errorf("Parse(%q): %v, which does not say what is expected", path, err)
		}
	}
}

func TestDirs(t *testing.T) {
	for got, want := range map[string]string{
		PodDir("example.com/disk"):                "/volumes/example.com~disk/",
		DeviceDir("/k", "example.com/disk"):       "/k/plugins/kubernetes.io/flexvolume/example.com/disk/mounts",
		LockFile("/k"):                            "/k/plugins/kubernetes.io/flexvolume/.flexdriver.lock",
		LockFile("/"):                             "/plugins/kubernetes.io/flexvolume/.flexdriver.lock",
		DeviceDir("/var/lib/kubelet", "a/b") + "": "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/a/b/mounts",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTargetPath(t *testing.T) {
	got, err := TargetPath("/k/pods/uid/volumes/a~b/pv")
	if want := "/k/pods/uid/flex2csi/volumes/kubernetes.io~csi/pv/mount"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for _, path := range []string{"/k/plugins/kubernetes.io/flexvolume/a/b/mounts/pv", "/tmp"} {
		if got, err := TargetPath(path); err == nil {
			t.Errorf("%s: %q, want an error", path, got)
		}
	}
}

// Nothing of ours is left below the pod, and nothing of others is removed.
func TestRemoveTarget(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pods/uid")
	target := func(volume string) string {
		private, err := TargetPath(filepath.Join(pod, "volumes/a~b", volume))
		if err != nil {
			t.Fatal(err)
		}
		return private
	}
	for _, dir := range []string{target("one"), filepath.Dir(target("two"))} { // a driver may have removed its target
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	RemoveTarget(target("one"), os.Remove)
	if _, err := os.Stat(filepath.Dir(target("two"))); err != nil {
		t.Errorf("the other volume's directory went, too: %v", err)
	}
	RemoveTarget(target("two"), os.Remove)
	if left, err := filepath.Glob(pod + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(pod); err != nil {
		t.Errorf("the pod's own directory is gone: %v", err)
	}
}

// What is taken apart can be put together again.
func FuzzKubeletdirParse(f *testing.F) {
	f.Add("/var/lib/kubelet/pods/uid-1/volumes/example.com~disk/pv-1")
	f.Add("/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-1")
	f.Add("/pods/u/volumes/a~b/c")
	f.Add("//pods/u/volumes/a~b/c")
	f.Add("/plugins/kubernetes.io/flexvolume///mounts/c")
	f.Add("pods/\x00/volumes/~/~")
	f.Fuzz(func(t *testing.T, path string) {
		p, err := Parse(path)
		if err != nil {
			if p != (Place{}) {
				t.Errorf("%q: %+v with %v", path, p, err)
			}
			return
		}
		vendor, driver, ok := strings.Cut(p.Driver, "/")
		if !ok || vendor == "" || driver == "" || strings.Contains(driver, "/") || p.Volume == "" || strings.Contains(p.Volume, "/") {
			t.Errorf("%q: %+v", path, p)
		}
		if !filepath.IsAbs(p.Root) {
			t.Errorf("%q: root %q", path, p.Root)
		}
		again := strings.TrimSuffix(p.Root, "/") + "/pods/" + p.PodUID + PodDir(p.Driver) + p.Volume
		if p.PodUID == "" {
			again = strings.TrimSuffix(p.Root, "/") + "/plugins/kubernetes.io/flexvolume/" + p.Driver + "/mounts/" + p.Volume
		}
		if filepath.Clean(path) == path && again != path {
			t.Errorf("%q: %+v, which is %q", path, p, again)
		}
	})
}
