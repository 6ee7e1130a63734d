package nodemounts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// guarded is a kubelet's directory with a volume of the same filesystem, as shared as a node
// has it.
type guarded struct {
	*Mounts
	t                   *testing.T
	data, target, spare string
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	testenv.Need(t, "mount")
	dir := t.TempDir()
	testenv.LeakCheck(t, dir)
	g := &guarded{Mounts: &Mounts{KubeletDir: filepath.Join(dir, "kubelet")}, t: t, data: filepath.Join(dir, "kubelet/data")}
	g.target = filepath.Join(g.KubeletDir, "pods/a/flex2csi/volumes/kubernetes.io~csi/pv/mount")
	g.spare = kubeletdir.SpareTarget(g.target)
	g.must(os.MkdirAll(g.data, 0o755))
	g.must(unix.Mount(g.KubeletDir, g.KubeletDir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(g.KubeletDir, 0) })
	g.must(unix.Mount("", g.KubeletDir, "", unix.MS_SHARED, ""))
	g.must(os.MkdirAll(kubeletdir.Guard(g.target), 0o755))
	g.must(os.WriteFile(filepath.Join(g.data, "file"), nil, 0o600))
	return g
}

func (g *guarded) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guarded) bind(target string) {
	g.t.Helper()
	g.must(os.MkdirAll(target, 0o755))
	g.must(unix.Mount(g.data, target, "", unix.MS_BIND, ""))
}

func device(path string) uint64 {
	var st unix.Stat_t
	_ = unix.Stat(path, &st) // of what is not there it is 0
	return st.Dev
}

// points are the mounts below the kubelet's directory.
func (g *guarded) points() map[string]int {
	g.t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(g.KubeletDir))
	g.must(err)
	count := map[string]int{}
	for _, i := range infos {
		count[i.Mountpoint]++
	}
	delete(count, g.KubeletDir)
	return count
}

// wantGuarded wants the volume behind one guard, and nothing else.
func (g *guarded) wantGuarded() {
	g.t.Helper()
	guard := kubeletdir.Guard(g.target)
	if device(guard) == device(filepath.Dir(guard)) || device(guard) == device(g.target) {
		g.t.Error("the device numbers are the same: the kubelet sees no mount point")
	}
	if _, err := os.Stat(filepath.Join(g.target, "file")); err != nil {
		g.t.Error(err)
	}
	if points := g.points(); len(points) != 2 || points[guard] != 1 || points[g.target] != 1 {
		g.t.Errorf("mounted: %v", points)
	}
	if _, err := os.Lstat(kubeletdir.Guard(g.spare)); !errors.Is(err, os.ErrNotExist) {
		g.t.Errorf("the spare directory: %v", err)
	}
}

func (g *guarded) wantNothing() {
	g.t.Helper()
	if points := g.points(); len(points) > 0 {
		g.t.Errorf("mounted: %v", points)
	}
	if left, _ := filepath.Glob(filepath.Join(g.KubeletDir, "pods/a/*")); len(left) > 0 {
		g.t.Errorf("left: %q", left)
	}
}

// TestGuard: repeated calls stack nothing, and the guard outlives what is mounted in it.
func TestGuard(t *testing.T) {
	g := newGuarded(t)
	for range 2 {
		g.must(g.Guard(t.Context(), g.target))
	}
	g.bind(g.target)
	g.must(g.Guard(t.Context(), g.target))
	g.wantGuarded()
	if err := g.release(t.Context(), kubeletdir.Guard(g.target)); !errors.Is(err, mounter.ErrBusy) {
		t.Errorf("release over a mount: %v", err)
	}
	g.wantGuarded()
	used, err := os.Open(kubeletdir.Guard(g.target))
	g.must(err)
	if err := g.RemoveTarget(t.Context(), g.target); !errors.Is(err, mounter.ErrBusy) {
		t.Errorf("with an open guard: %v", err)
	}
	used.Close()
	for range 2 {
		g.must(g.RemoveTarget(t.Context(), g.target))
	}
	g.wantNothing()
}

// TestGuardAfterUpgrade: what an earlier version published without a guard gets behind one,
// and stays mounted for its pod, wherever that is interrupted.
func TestGuardAfterUpgrade(t *testing.T) {
	guardAt := func(g *guarded, target string) { g.must(g.mountGuard(g.t.Context(), kubeletdir.Guard(target))) }
	steps := map[string]func(g *guarded){
		"0 not begun":     func(g *guarded) { g.bind(g.target) },
		"1 spare guard":   func(g *guarded) { g.bind(g.target); guardAt(g, g.spare) },
		"2 spare bound":   func(g *guarded) { g.bind(g.target); guardAt(g, g.spare); g.bind(g.spare) },
		"3 target gone":   func(g *guarded) { guardAt(g, g.spare); g.bind(g.spare); g.must(os.Mkdir(g.target, 0o755)) },
		"4 guard":         func(g *guarded) { guardAt(g, g.spare); g.bind(g.spare); guardAt(g, g.target) },
		"5 target back":   func(g *guarded) { guardAt(g, g.spare); g.bind(g.spare); guardAt(g, g.target); g.bind(g.target) },
		"6 spare unbound": func(g *guarded) { guardAt(g, g.spare); guardAt(g, g.target); g.bind(g.target) },
		"7 spare directory": func(g *guarded) {
			g.must(os.Mkdir(kubeletdir.Guard(g.spare), 0o755))
			guardAt(g, g.target)
			g.bind(g.target)
		},
	}
	for name, reach := range steps {
		t.Run(name, func(t *testing.T) {
			g := newGuarded(t)
			reach(g)
			g.must(g.Guard(t.Context(), g.target))
			g.wantGuarded()
			g.must(g.RemoveTarget(t.Context(), g.target))
			g.wantNothing()
		})
		t.Run(name+", removed", func(t *testing.T) {
			g := newGuarded(t)
			reach(g)
			g.must(g.RemoveTarget(t.Context(), g.target))
			g.wantNothing()
		})
	}
}

// TestGuardWhileUsed: a process that uses the target path does not keep it unguarded.
func TestGuardWhileUsed(t *testing.T) {
	g := newGuarded(t)
	g.bind(g.target)
	used, err := os.Create(filepath.Join(g.target, "used"))
	g.must(err)
	defer used.Close()
	g.must(g.Guard(t.Context(), g.target))
	g.wantGuarded()
	_, err = used.WriteString("x")
	g.must(err)
	g.must(g.RemoveTarget(t.Context(), g.target))
	g.wantNothing()
}

// TestGuardLeavesOtherFilesystems: they stop each kubelet, and may not answer.
func TestGuardLeavesOtherFilesystems(t *testing.T) {
	g := newGuarded(t)
	g.must(os.Mkdir(g.target, 0o755))
	g.must(unix.Mount("csi", g.target, "tmpfs", 0, "size=64k"))
	g.must(g.Guard(context.Background(), g.target))
	if points := g.points(); len(points) != 1 {
		t.Errorf("mounted: %v", points)
	}
	g.must(g.RemoveTarget(t.Context(), g.target))
	g.wantNothing()
}
