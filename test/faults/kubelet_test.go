package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A kubelet is one run of it. What it knows dies with it.
//
// Where it does as Kubernetes v1.37.1 the function is named; FV is
// pkg/volume/flexvolume, OG is pkg/volume/util/operationexecutor/operation_generator.go.
type kubelet struct {
	*world
	ctx     context.Context //nolint:containedctx // its life
	cancel  context.CancelFunc
	run     int // how many there were before
	devices map[*volume]*device
	work    sync.WaitGroup

	taken sync.Map     // UIDs
	using atomic.Int64 // volumes that pods have
}

func newKubelet(w *world) *kubelet {
	k := &kubelet{world: w, devices: map[*volume]*device{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	w.report.count("kubelet starts")
	k.run = w.report.counted("kubelet starts")
	for _, v := range w.volumes {
		k.devices[v] = newDevice()
	}
	return k
}

// stop ends the kubelet with its callouts, as systemd does by default.
func (k *kubelet) stop() {
	k.cancel()
	k.work.Wait()
}

// reconstruct takes up the desired pods, and those with directories
// (pkg/kubelet/volumemanager/reconciler/reconstruct.go).
func (k *kubelet) reconstruct() {
	random := k.random(fmt.Sprintf("kubelet %d", k.run))
	pods := k.cluster.all()
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for _, p := range pods {
		k.take(p)
	}
	dirs, _ := filepath.Glob(k.podDir("*")) // the pattern is well formed
	for _, dir := range dirs {
		k.take(k.orphan(dir))
	}
}

// orphan returns a pod that is known only by its directory.
func (k *kubelet) orphan(dir string) *pod {
	p := &pod{uid: filepath.Base(dir), deleted: make(chan struct{})}
	p.delete()
	volumes, _ := filepath.Glob(filepath.Join(dir, "volumes/*/*")) // the pattern is well formed
	for _, path := range volumes {
		if v := k.volumeNamed(filepath.Base(path)); v != nil {
			p.uses = append(p.uses, &use{volume: v, ready: make(chan struct{})})
		}
	}
	return p
}

// take begins to look after a pod.
func (k *kubelet) take(p *pod) {
	if _, known := k.taken.LoadOrStore(p.uid, true); known || k.ctx.Err() != nil {
		return
	}
	k.work.Go(func() { k.look(p) })
}

// look is what a kubelet does for a pod from here to its end.
func (k *kubelet) look(p *pod) {
	var uses sync.WaitGroup
	for _, u := range p.uses {
		uses.Go(func() { k.serve(p, u) })
	}
	uses.Wait()
	for k.ctx.Err() == nil {
		if k.cleanUp(p.uid) == nil {
			k.cluster.remove(p)
			return
		}
		k.pause(nil, 20*time.Millisecond)
	}
}

// serve is the life of a volume in a pod, and of the device if no other pod
// has it.
func (k *kubelet) serve(p *pod, u *use) {
	random := k.random(fmt.Sprintf("%s %s %d", p.uid, u.volume.name, k.run))
	d := k.device(u.volume)
	d.enter()
	k.mountAndUse(random, p, u)
	if k.ctx.Err() != nil {
		return // it still has the volume
	}
	d.leave()
	k.releaseDevice(random, u.volume)
}

func (k *kubelet) mountAndUse(random *rand.Rand, p *pod, u *use) {
	at := &place{dir: k.volumeDir(p, u), volume: u.volume, readOnly: u.readOnly, pod: p.uid}
	uncertain := exists(at.dir) // reconstructed
	mounted := k.mount(random, p, at)
	for mounted {
		u.isReady()
		if k.use(random, p, at) {
			break
		}
		k.report.count(countHalf)
		mounted = k.mount(random, p, at)
	}
	switch {
	case k.ctx.Err() != nil:
	case mounted || uncertain:
		k.takeDown(random, at, mounted)
	default: // OG, markVolumeErrorState: what failed is not mounted
		k.report.count(countForgot)
		if isMount(at.dir) {
			k.report.count(countOrphans)
		}
	}
}

// firstRetry is the kubelet's pause after a mount that failed (pkg/util/goroutinemap/
// exponentialbackoff, initialDurationBeforeRetry). By then the daemon has undone a bind that no
// caller waited for (unbind-unseen).
const firstRetry = 500 * time.Millisecond

// mount tries until the pod has the volume; false if the pod was deleted. It tries again sooner
// than a kubelet where nothing of the call before can be going on.
func (k *kubelet) mount(random *rand.Rand, p *pod, at *place) bool {
	for wait := 5 * time.Millisecond; !p.gone() && k.ctx.Err() == nil; wait = min(2*wait, 300*time.Millisecond) {
		switch err := k.setUp(random, at); {
		case err == nil:
			return true
		case errors.Is(err, errLeft):
			k.pause(p.deleted, firstRetry)
		default:
			k.pause(p.deleted, wait)
		}
	}
	return false
}

func (k *kubelet) volumeDir(p *pod, u *use) string {
	return filepath.Join(k.podDir(p.uid), "volumes", escaped(u.volume.driver), u.volume.name)
}

// setUp is one try to mount a volume for a pod (FV, SetUpAt).
func (k *kubelet) setUp(random *rand.Rand, at *place) error {
	if at.volume.attach() {
		unlock, err := k.prepareDevice(random, at.volume)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if at.found = isMount(at.dir); at.found {
		k.report.count(countSkipped)
		return k.promised("found", at)
	}
	if err := os.MkdirAll(at.dir, 0o750); err != nil {
		return err
	}
	err := k.call(k.ctx, random, at.volume.driver, "mount", at.dir, k.options(at.volume, at.readOnly, at.pod))
	if err != nil {
		_ = os.Remove(at.dir) // as the kubelet does, whatever comes of it
		return err
	}
	return k.promised("mount", at)
}

// promised checks what was said to be mounted.
func (k *kubelet) promised(what string, at *place) error {
	if err := at.check(); err != nil && !at.mayVanish() {
		k.complain("after %s of %s at %s: %v", what, at.volume.handle, at.dir, err)
	}
	return nil
}

// complain notes what is wrong, unless the node is going down: then nothing
// can be said of it.
func (k *kubelet) complain(format string, args ...any) {
	if k.ctx.Err() == nil {
		k.report.wrong(fmt.Sprintf(format, args...))
	}
}

// use is the time in which the pod has the volume. It returns false if that was
// taken for mounted and was not, as can happen without a target path of its own.
func (k *kubelet) use(random *rand.Rand, p *pod, at *place) bool {
	k.using.Add(1)
	defer k.using.Add(-1)
	if !k.Images && !at.readOnly && random.IntN(8) == 0 {
		k.expand(random, p, at)
	}
	for !p.gone() && k.ctx.Err() == nil {
		k.pause(p.deleted, 50*time.Millisecond)
		if err := at.check(); err != nil {
			if at.mayVanish() {
				return false
			}
			k.complain("while pod %s uses %s: %v", at.pod, at.volume.handle, err)
			return true
		}
	}
	return true
}

// takeDown unmounts until that succeeds (FV, TearDownAt).
func (k *kubelet) takeDown(random *rand.Rand, at *place, used bool) {
	if used && !at.mayVanish() {
		if err := at.leave(); err != nil {
			k.complain("when pod %s leaves %s: %v", at.pod, at.volume.handle, err)
		}
	}
	for wait := 5 * time.Millisecond; k.ctx.Err() == nil; wait = min(2*wait, 300*time.Millisecond) {
		if !exists(at.dir) {
			return
		}
		if err := k.call(k.ctx, random, at.volume.driver, "unmount", at.dir); err != nil {
			k.pause(nil, wait)
			continue
		}
		if isMount(at.dir) {
			k.complain("after unmount of %s it is still mounted at %s", at.volume.handle, at.dir)
		}
		if err := removeDir(at.dir); err != nil {
			k.complain("after unmount of %s: %v", at.volume.handle, err)
		}
		if used {
			k.report.count(countCycles)
		}
		return
	}
}

// cleanUp removes the directory of a pod that is gone: within volumes only
// what is empty, all else but what is mounted
// (pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs).
func (w *world) cleanUp(uid string) error {
	dir := w.podDir(uid)
	for _, pattern := range []string{"volumes/*/*", "volumes/*", "volumes"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		for _, path := range paths {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	err := removeUnmounted(filepath.Join(dir, "flex2csi"))
	for _, v := range w.volumes {
		if !w.Images && !exists(filepath.Join(w.disks(), "volumes", v.handle+".d", nameFile)) {
			w.report.wrong(fmt.Sprintf("the kubelet has deleted what is in %s, through the directory of pod %s", v.handle, uid))
		}
	}
	if err != nil {
		return err
	}
	return removeDir(dir)
}

// removeUnmounted removes a tree up to other filesystems, as kubelets before 1.30 do: they
// do not see a directory of their own filesystem that is bound (pkg/util/removeall,
// RemoveAllOneFilesystem; mount-utils v0.29, IsLikelyNotMountPoint). test/removal has the
// code itself.
func removeUnmounted(path string) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if info, statErr := os.Lstat(path); statErr != nil || !info.IsDir() {
		return err
	}
	if here, above := deviceOf(path), deviceOf(filepath.Dir(path)); here != above {
		return fmt.Errorf("%s is a mount point", path)
	}
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if err := removeUnmounted(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	return removeDir(path)
}

// deviceOf is the number of the filesystem at a path; 0 where stat fails, as of a dead one.
func deviceOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Dev
}

// pause waits, but not longer than until something happens.
func (k *kubelet) pause(wake <-chan struct{}, d time.Duration) {
	select {
	case <-time.After(d):
	case <-wake:
	case <-k.ctx.Done():
	}
}
