package contract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// endlessProgram replaces a program by one that never ends, has a child that
// never ends, and is deaf to SIGTERM. It returns the file that says that it
// runs, and the way to have the real program again.
func (n *node) endlessProgram(name string) (running string, restore func()) {
	n.t.Helper()
	running = filepath.Join(n.work, "running")
	return running, n.mountProgram(name, "trap '' TERM\nsleep 300 &\ntouch "+running+"\nsleep 300\n")
}

// TestMountInterrupted by a service manager that ends the kubelet and all that
// it runs, or by its own deadline, while a program of the file system runs: the
// answer is a Failure, soon; the program and its children end; nothing is left.
func TestMountInterrupted(t *testing.T) {
	programs := map[string]kind{"mkfs.ext4": imageExt4(), "mount.cifs": network("cifs", "//server/share")}
	for program, k := range programs {
		t.Run(program+" by SIGTERM", func(t *testing.T) {
			n := newNode(t, false)
			running, restore := n.endlessProgram(program)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			go func() {
				for end := time.Now().Add(patience); !exists(running) && time.Now().Before(end); {
					time.Sleep(5 * time.Millisecond)
				}
				for _, pid := range n.drivers() {
					_ = unix.Kill(pid, unix.SIGTERM) // the answer tells
				}
			}()
			err := n.mount(v, pod)
			if stat, statErr := os.Stat(running); statErr != nil || time.Since(stat.ModTime()) > 5*time.Second {
				t.Errorf("the answer came too late (%v)", statErr)
			}
			checkInterrupted(n, v, pod, err, "interrupted")
			restore()
			mountAfterAll(n, v, pod)
		})
		t.Run(program+" by its deadline", func(t *testing.T) {
			n := newNode(t, false, deadline("mount", "2s"))
			_, restore := n.endlessProgram(program)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			err := n.mount(v, pod)
			if c := n.runner.last(t, "mount"); c.end.Sub(c.start) > 5*time.Second {
				t.Errorf("the answer took %v, with a deadline of 2 s", c.end.Sub(c.start))
			}
			checkInterrupted(n, v, pod, err, "still in progress")
			restore()
			mountAfterAll(n, v, pod)
		})
	}
}

func checkInterrupted(n *node, v *vol, pod *v1.Pod, err error, words string) {
	n.t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		n.t.Errorf("mount: %v, want %q", err, words)
	}
	eventually(n.t, "all processes have ended", func() bool { return len(children(n.t)) == 0 })
	checkFailedSetup(n, v, pod)
}

// mountAfterAll repeats an interrupted mount of a disk, now undisturbed.
func mountAfterAll(n *node, v *vol, pod *v1.Pod) {
	n.t.Helper()
	if v.kind.name != imageExt4().name {
		return // there is no server
	}
	n.must(n.mount(v, pod))
	n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
	n.takeDown(v, pod)
}
