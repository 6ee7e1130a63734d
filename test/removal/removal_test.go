package removal

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/bridgetest"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestBareMountIsLost: without a guard kubelets before 1.30 empty a directory of their
// filesystem that is bound below pods/<uid>. If this fails the guard is not needed any more.
func TestBareMountIsLost(t *testing.T) {
	testenv.Need(t, "root", "mount")
	for _, release := range releases() {
		t.Run(release, func(t *testing.T) {
			dir := t.TempDir()
			data, target := filepath.Join(dir, "data"), filepath.Join(dir, "pods/a/flex2csi/volumes/kubernetes.io~csi/pv-1/mount")
			for _, made := range []error{os.MkdirAll(data, 0o700), os.MkdirAll(target, 0o700), os.WriteFile(filepath.Join(data, precious), nil, 0o600), unix.Mount(data, target, "", unix.MS_BIND, "")} {
				if made != nil {
					t.Fatal(made)
				}
			}
			defer func() { _ = unix.Unmount(target, 0) }()
			out, err := exec.Command(kubelet(t, release), filepath.Join(dir, "pods/a/flex2csi")).CombinedOutput()
			if err == nil {
				t.Error("removed a mount point")
			}
			_, lost := os.Stat(filepath.Join(data, precious))
			if kept := release == "1.37"; kept != (lost == nil) {
				t.Errorf("the file is there: %t, want %t; this contract has changed: %s", lost == nil, kept, out)
			}
		})
	}
}

// A situation leaves a volume published that the kubelet does not know of, or not any more.
type situation struct {
	name string
	// happen brings it about, and end what is to follow for ours to be removed.
	happen, end func(w *world)
}

func situations() []situation {
	nothing := func(*world) {}
	restart := func(w *world) {
		w.fail()
		w.daemon = w.Serve(csiDriver)
	}
	uncertain := fault.Rule{Method: "NodePublishVolume", After: true, Code: codes.Unavailable}
	return []situation{
		{"published", func(w *world) { w.volume.Mount(pod) }, func(w *world) { w.volume.Unmount(pod) }},
		{"publish uncertain", func(w *world) { w.mountFails(uncertain) }, nothing},
		{"undo failed", func(w *world) {
			final := fault.Rule{Method: "NodePublishVolume", After: true, Code: codes.Internal}
			w.mountFails(final, fault.Rule{Method: "NodeUnpublishVolume", Code: codes.Internal})
		}, func(w *world) { w.fail() }},
		{"publish uncertain, daemon killed", func(w *world) {
			w.mountFails(uncertain)
			w.kill()
		}, restart},
		{"daemon killed in publish", (*world).killedInPublish, restart},
		{"daemon killed in publish, unmounted without it", func(w *world) {
			w.killedInPublish()
			w.unmountAlone()
		}, restart},
		{"published, unmounted without daemon", func(w *world) {
			w.volume.Mount(pod)
			w.kill()
			w.unmountAlone()
			if left := w.mountsOf(); len(left) > 0 {
				w.t.Errorf("left mounted: %q", left)
			}
		}, restart},
	}
}

// TestUserDataIsKept: finding N1 of 2026-11. The file of the user is there after each of the
// kubelet's tries, and in the end nothing is left of the pod.
func TestUserDataIsKept(t *testing.T) {
	for _, release := range releases() {
		t.Run(release, func(t *testing.T) {
			program := kubelet(t, release)
			for _, s := range situations() {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel() // most of the time is spent waiting
					w := newWorld(t, program)
					s.happen(w)
					for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
						w.removePod()
					}
					s.end(w)
					w.removeUntilGone()
				})
			}
		})
	}
}

// mountFails mounts for a kubelet that forgets the pod after a failure, as of 1.24..1.37
// (operation_generator.go, markVolumeErrorState): it removes its directory, and calls nothing.
func (w *world) mountFails(rules ...fault.Rule) {
	w.t.Helper()
	w.fail(rules...)
	if status := w.volume.TryMount(pod); status.Status != flex.StatusFailure {
		w.t.Fatalf("mount answered %s", status.Status)
	}
	w.must(os.Remove(w.dir()))
}

// dir is the pod's directory of the volume.
func (w *world) dir() string { return w.PodVolumeDir(pod, bridgetest.FlexDriver, "pv-1") }

func (w *world) kill() { w.must(w.daemon.End(unix.SIGKILL)) }

// killedInPublish: the driver does not notice, and publishes later.
func (w *world) killedInPublish() {
	w.t.Helper()
	w.fail(fault.Rule{Method: "NodePublishVolume", Delay: fault.Duration(time.Second), Stubborn: true})
	dir := w.dir()
	argument, err := flex.Options{VolumeName: "pv-1", User: map[string]string{"volumeHandle": handle}}.MarshalArgument()
	w.must(err)
	w.Must("init") // it listens
	w.Send("mount", dir, argument)
	testenv.Eventually(w.t, "the target is being published", func() bool {
		_, err := os.Stat(filepath.Dir(w.target()))
		return err == nil
	})
	time.Sleep(100 * time.Millisecond)
	w.kill()
	w.must(os.Remove(dir))
}

// unmountAlone is flexdriver's, which does without a daemon.
func (w *world) unmountAlone() {
	w.t.Helper()
	argv := []string{"unmount", w.dir()}
	b := &handoff.Backend{Name: bridgetest.FlexDriver, Argv: argv, Socket: w.Path("run/flex2csi.sock"), StateDir: w.Path("state")}
	if status := flex.Run(w.t.Context(), b.Driver(), argv); status.Status != flex.StatusSuccess {
		w.t.Fatalf("unmount answered %s: %s", status.Status, status.Message)
	}
	w.must(os.Remove(w.dir()))
}

// TestEveryInstant lets the oldest kubelet delete the pod all the time, as none does while a
// pod lives.
func TestEveryInstant(t *testing.T) {
	w := newWorld(t, kubelet(t, "1.24"))
	w.fail(fault.Rule{Method: "NodePublishVolume", After: true, Code: codes.Unavailable, Times: 3}, fault.Rule{Method: "NodeUnpublishVolume", Code: codes.Internal, Times: 3})
	end := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for mounts := 0; mounts < 30; {
			if w.volume.TryMount(pod).Status == flex.StatusSuccess {
				mounts++
			}
			for w.Call("unmount", w.dir()).Status != flex.StatusSuccess {
				time.Sleep(time.Millisecond)
			}
		}
		close(end)
	}()
	for {
		w.removePod()
		select {
		case <-end:
			<-done
			w.removeUntilGone()
			return
		default:
		}
	}
}
