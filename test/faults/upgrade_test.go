package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// upgrade replaces flexdriver and the daemon by other builds, in both orders,
// while calls are made all the time. None may fail.
func (w *world) upgrade() {
	if err := errors.Join(os.RemoveAll(w.path("exec")), os.Mkdir(w.path("exec"), 0o755), w.installBuild(w.Flexdriver)); err != nil {
		w.report.wrong(err.Error())
		return
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var done, failed atomic.Int64
	for n := range 4 {
		load.Go(func() { w.load(n, stop, &done, &failed) })
	}
	err := w.replaceAll()
	close(stop)
	load.Wait()
	if err == nil {
		l := w.newLiver(lives()["plain"])
		err = l.gone()
	}
	if err != nil {
		w.report.wrong(err.Error())
	}
	w.report.note("%d calls while flexdriver was replaced %d times and the daemon %d times: %d failed", w.report.counted(countCalls), w.report.counted("flexdriver replaced"), w.report.counted("daemon replaced"), failed.Load())
}

// replaceAll goes from one build to the other and back.
func (w *world) replaceAll() error {
	daemon, next := w.Daemon, w.NewDaemon
	driver, nextDriver := w.Flexdriver, w.NewFlexdriver
	for round := range 4 {
		signal := unix.SIGTERM
		if round%2 == 1 {
			signal = unix.SIGKILL
		}
		for _, daemonFirst := range []bool{false, true} {
			steps := []func() error{
				func() error { return w.installBuild(nextDriver) },
				func() error { return w.replaceDaemon(next, signal) },
			}
			if daemonFirst {
				steps[0], steps[1] = steps[1], steps[0]
			}
			for _, step := range steps {
				time.Sleep(250 * time.Millisecond) // some calls with each combination
				if err := step(); err != nil {
					return err
				}
			}
			daemon, next = next, daemon
			driver, nextDriver = nextDriver, driver
		}
	}
	time.Sleep(250 * time.Millisecond)
	return nil
}

func (w *world) replaceDaemon(binary string, signal syscall.Signal) error {
	w.daemon.hold(signal)
	w.Daemon = binary
	w.report.count("daemon replaced")
	return w.daemon.release()
}

// installBuild installs a build of flexdriver as an administrator does.
func (w *world) installBuild(binary string) error {
	for _, driver := range []string{plainDriver, directDriver} {
		cmd := exec.Command(binary, "install", "--driver", driver, "--volume-plugin-dir", w.path("exec"), "--backend", "csi", "--socket", w.socket(), "--state-dir", w.stateDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install %s: %w: %s", binary, err, out)
		}
	}
	w.report.count("flexdriver replaced")
	return nil
}

// load leads lives until it is told to stop. A call is made once, and counted when it is
// done.
func (w *world) load(n int, stop <-chan struct{}, done, failed *atomic.Int64) {
	l := w.newLiver(life{flexDriver: []string{plainDriver, directDriver}[n%2]})
	for pod := 0; ; pod++ {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("load-%d-%d", n, pod)
		for _, c := range []callout{{flex.CommandMount, name}, {flex.CommandUnmount, name}} {
			if err := l.onlyOnce(c); err != nil {
				failed.Add(1)
				w.report.wrong(fmt.Sprintf("%s: %v", c, err))
			}
			done.Add(1)
		}
		if err := w.cleanUp(name); err != nil {
			w.report.wrong(err.Error())
		}
	}
}

// onlyOnce makes a call through flexdriver, once.
func (l *liver) onlyOnce(c callout) error {
	if err := l.prepare(c); err != nil {
		return err
	}
	l.report.count(countCalls)
	start := time.Now()
	status, err := l.execute(context.Background(), l.flexDriver, l.argv(c), 30*time.Second)
	l.report.took(time.Since(start))
	if err != nil {
		return err
	}
	if status.Status != flex.StatusSuccess {
		return fmt.Errorf("%s: %s", status.Status, status.Message)
	}
	return l.made(c)
}
