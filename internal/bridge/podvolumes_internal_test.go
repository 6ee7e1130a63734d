package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// has makes the kubelet's CSI plugin have a volume for a pod.
func has(t testing.TB, podsDir, pod, volume, handle string) string {
	t.Helper()
	dir := filepath.Join(podsDir, pod, "volumes/kubernetes.io~csi", volume)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"driverName":"d","volumeHandle":%q}`, handle)
	if err := os.WriteFile(filepath.Join(dir, volDataFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPodVolumes: each look sees what is there when it begins, also where a file was
// written again, in the same length, or put in the place of another.
func TestPodVolumes(t *testing.T) {
	pods := t.TempDir()
	var p podVolumes
	want := func(what string, handle string, want ...string) {
		t.Helper()
		got := p.dirs(pods, csivol.Key{Driver: "d", Handle: handle})
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %s is at %q, want %q", what, handle, got, want)
		}
	}
	want("nothing", "h1")
	a := has(t, pods, "pod-a", "pv1", "h1")
	want("one", "h1", a)
	b := has(t, pods, "pod-b", "pv1", "h1")
	c := has(t, pods, "pod-b", "pv2", "h2")
	want("three", "h1", a, b)
	want("three", "h2", c)
	has(t, pods, "pod-b", "pv1", "h3")
	want("another volume in its place", "h1", a)
	want("another volume in its place", "h3", b)
	if err := os.RemoveAll(filepath.Join(pods, "pod-b")); err != nil {
		t.Fatal(err)
	}
	want("a pod that is gone", "h2")
	b = has(t, pods, "pod-b", "pv1", "h2")
	want("the same directory again", "h2", b)
	if len(p.read) != 2 {
		t.Errorf("%d files are remembered, of 2", len(p.read))
	}
	for _, broken := range []string{"", "{", `{"driverName":1}`} {
		if err := os.WriteFile(filepath.Join(a, volDataFile), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		want("a broken file", "h1")
	}
}

// TestPodVolumesAtOnce: who shares an answer does not miss what was there before it asked.
func TestPodVolumesAtOnce(t *testing.T) {
	pods := t.TempDir()
	var p podVolumes
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			handle := fmt.Sprintf("h%d", i)
			for n := range 8 {
				dir := has(t, pods, fmt.Sprintf("pod-%d", i), fmt.Sprintf("pv-%d", n), handle)
				if got := p.dirs(pods, csivol.Key{Driver: "d", Handle: handle}); !slices.Contains(got, dir) {
					t.Errorf("%s is not seen: %q", dir, got)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkPodVolumes: a node with 250 pods that have CSI volumes, 16 operations at a time.
func BenchmarkPodVolumes(b *testing.B) {
	pods := b.TempDir()
	for i := range 250 {
		has(b, pods, fmt.Sprintf("pod-%d", i), "pv", fmt.Sprintf("h%d", i))
	}
	b.Run("shared", func(b *testing.B) {
		var p podVolumes
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p.dirs(pods, csivol.Key{Driver: "d", Handle: "h7"})
			}
		})
	})
	b.Run("each-reads-all", func(b *testing.B) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				var p podVolumes
				p.dirs(pods, csivol.Key{Driver: "d", Handle: "h7"})
			}
		})
	})
}
