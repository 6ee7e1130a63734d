package storage_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An outage is a time in which servers do not serve.
type outage struct {
	begin, end func()
	// lasts is how long the pod goes on to write before it is deleted.
	lasts time.Duration
}

// silent is the outage in which packets go to the servers and none comes back.
func (n *network) silent() outage { return outage{begin: n.silence, end: n.answer} }

// strike has servers fail under a pod that writes. Another pod wants the volume then, and the
// first one is deleted; what the two calls answer it returns. When the servers serve again, the
// kubelet's next calls end what was begun, and a third pod reads what was written before.
func (o outage) strike(t *testing.T, v *volume) (mounted, unmounted flex.DriverStatus) {
	t.Helper()
	a, b := v.pod("a").mount(), v.pod("b")
	if err := a.write("before", "data"); err != nil {
		t.Fatal(err)
	}
	w := a.startWriter("lines")
	w.wantMore()
	end := sync.OnceFunc(o.end)
	t.Cleanup(end)
	o.begin()
	time.Sleep(o.lasts)
	mounted = b.tryMount()
	t.Logf("the writer ended when it was killed: %t", w.kill())
	unmounted = a.tryUnmount()
	end()
	for _, p := range []*pod{b, a} {
		eventually(t, p.tryUnmount)
		p.unmount()
	}
	v.n.wantNothing()
	c := v.pod("c")
	eventually(t, c.tryMount)
	c.wantRead("before", "data")
	c.unmount()
	v.n.wantNothing()
	return mounted, unmounted
}

// pass has servers fail under a pod that writes and that waits for them: it goes on when they
// serve again, and has lost no line.
func (o outage) pass(t *testing.T, v *volume) {
	t.Helper()
	a := v.pod("a").mount()
	w := a.startWriter("lines")
	w.wantMore()
	end := sync.OnceFunc(o.end)
	t.Cleanup(end)
	o.begin()
	time.Sleep(o.lasts)
	end()
	w.wantMore()
	eventually(t, a.tryMount) // as after a restart of the kubelet
	if !w.kill() {
		t.Error("the writer cannot be killed")
	}
	a.unmount()
	v.n.wantNothing()
}

// patience is how long after an outage everything is as it was: clients of NFS and SMB ask ever
// more rarely.
const patience = 3 * time.Minute

// eventually repeats a call until it answers Success, as the kubelet does.
func eventually(t *testing.T, call func() flex.DriverStatus) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		status := call()
		if status.Status == flex.StatusSuccess {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s: %s", patience, status.Status, status.Message)
		}
	}
}

// A writer is a process of a pod. It adds line after line to a file, each of which the storage
// has taken before the next one. It is no thread of the test, which could not end while a system
// call hangs.
type writer struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
	taken string // has a byte for each line
}

func (p *pod) startWriter(name string) *writer {
	t := p.v.n.t
	t.Helper()
	w := &writer{t: t, ended: make(chan struct{}), taken: p.v.n.path(p.name + ".lines")}
	w.cmd = exec.Command("sh", "-c", `exec 3>>"$0"; while echo line >&3 && sync "$0"; do printf . >>"$1"; sleep .2; done`, filepath.Join(p.dir(), name), w.taken)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.ended)
		_ = w.cmd.Wait() // it is killed, or its storage fails
	}()
	t.Cleanup(func() { w.kill() })
	return w
}

// wantMore waits until the storage has taken another line.
func (w *writer) wantMore() {
	w.t.Helper()
	count := func() int {
		text, _ := os.ReadFile(w.taken) // it may not be there yet
		return bytes.Count(text, []byte("."))
	}
	before := count()
	for deadline := time.Now().Add(patience); count() == before; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("the writer has had no further line taken for %v", patience)
		}
	}
}

// kill ends the writer as the deletion of its pod does, and reports whether it has ended: a
// system call may keep it.
func (w *writer) kill() bool {
	select {
	case <-w.ended:
		return true
	default:
		_ = unix.Kill(-w.cmd.Process.Pid, unix.SIGKILL) // it may end now
	}
	select {
	case <-w.ended:
		return true
	case <-time.After(30 * time.Second):
		return false
	}
}
