package bridge_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// requests notes for which requests a driver was asked to stage.
type requests struct {
	bridge.Service
	staged chan string
}

func (r *requests) NodeStage(ctx context.Context, s csivol.StageRequest) error {
	r.staged <- volumelog.From(ctx).Request
	return r.Service.NodeStage(ctx, s)
}

// callAs makes a callout with a request id, and does not wait for it.
func (n *node) callAs(id string, args ...string) <-chan flex.DriverStatus {
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		n.t.Fatal(err)
	}
	answer := make(chan flex.DriverStatus, 1)
	go func() { answer <- flex.Run(volumelog.With(n.t.Context(), volumelog.Subject{Request: id}), d, args) }()
	return answer
}

// await looks at the status until it is as wanted.
func (n *node) await(what string, as func([]bridge.VolumeState) bool) []bridge.VolumeState {
	n.t.Helper()
	for giveUp := time.Now().Add(time.Minute); time.Now().Before(giveUp); time.Sleep(time.Millisecond) {
		if s := n.bridge.Status(); as(s) {
			return s
		}
	}
	n.t.Fatalf("never seen: %s; the status is %+v", what, n.bridge.Status())
	return nil
}

func operations(count int) func([]bridge.VolumeState) bool {
	return func(s []bridge.VolumeState) bool { return len(s) == 1 && len(s[0].Operations) == count }
}

// TestStatus: who looks sees what is under way, what waits for it, and for
// which requests; and the driver is asked in the name of the request.
func TestStatus(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.driver.hold = make(chan struct{})
	asked := &requests{n.driver, make(chan string, 9)}
	n.bridge.Drivers.All[0].Service = asked

	first := n.callAs("r1", "mount", n.podDir("p1"), options)
	if got := <-asked.staged; got != "r1" {
		t.Errorf("NodeStage is for the request %q, want r1", got)
	}
	second := n.callAs("r2", "mount", n.podDir("p2"), options)
	s := n.await("two operations", operations(2))
	r, a, b := s[0].Record, s[0].Operations[0], s[0].Operations[1]
	if r.Handle != "h1" || r.Stage != volstate.Doing || a.Command != flex.CommandMount {
		t.Errorf("the volume is %+v, its operations %+v", r, s[0].Operations)
	}
	if a.Request != "r1" || a.Dir != n.podDir("p1") || a.Begun.Before(a.Since) || b.Request != "r2" || !b.Begun.IsZero() {
		t.Errorf("operations are %+v, want that of r1 under way and that of r2 waiting", s[0].Operations)
	}

	again := n.callAs("r3", "mount", n.podDir("p1"), options)
	close(n.driver.hold)
	for _, answer := range []<-chan flex.DriverStatus{first, second, again} {
		if got := <-answer; got.Status != flex.StatusSuccess {
			t.Error(got.Message)
		}
	}
	s = n.await("no operation", operations(0))
	if got := len(s[0].Record.Targets); got != 2 {
		t.Errorf("%d targets, want 2", got)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.await("nothing", func(s []bridge.VolumeState) bool { return len(s) == 0 })
}

// TestLogNamesTheRequest: lines about what a call set off have its id.
func TestLogNamesTheRequest(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.driver.fail["NodePublish"] = []error{final(flex.CodeInternal, "no")}
	n.driver.fail["NodeUnpublish"] = []error{final(flex.CodeInternal, "neither")}
	n.driver.fail["NodeUnstage"] = []error{final(flex.CodeInternal, "nor that")}
	if s := <-n.callAs("r1", "mount", n.podDir("p1"), options); s.Status != flex.StatusFailure {
		t.Fatalf("mount answers %+v", s)
	}
	if log.Len() == 0 {
		t.Fatal("nothing was logged")
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "request=r1") || !strings.Contains(line, "volumeHandle=h1") {
			t.Errorf("no request, or no volume: %s", line)
		}
	}
}

// TestLastErrorIsOver: what went wrong is shown until it has gone right.
func TestLastErrorIsOver(t *testing.T) {
	for _, method := range []string{"ControllerPublish", "NodeStage", "NodePublish"} {
		n := newNode(t)
		n.driver.fail[method] = []error{final(flex.CodeUnavailable, "not now")}
		dir := n.podDir("p1")
		if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
			t.Fatalf("mount answers %+v", s)
		}
		if r := n.record(); !strings.Contains(r.LastError+r.Targets[dir].LastError, "not now") {
			t.Errorf("%s: the error is not shown: %+v", method, r)
		}
		n.succeed("mount", dir, options)
		if r := n.record(); r.LastError != "" || r.Targets[dir].LastError != "" {
			t.Errorf("%s: still shown after a success: %q, %q", method, r.LastError, r.Targets[dir].LastError)
		}
		n.succeed("unmount", dir)
		n.empty()
	}
}

// TestLostIsShown: until the volume has a record again, or is unmounted.
func TestLostIsShown(t *testing.T) {
	lose := func() (n *node, dir string) {
		n = newNode(t)
		dir = n.podDir("p1")
		n.succeed("mount", dir, options)
		if err := errors.Join(os.MkdirAll(dir, 0o750), os.RemoveAll(filepath.Join(n.dir, "state"))); err != nil {
			t.Fatal(err)
		}
		n.start("boot-1")
		want := []bridge.LostStatus{{FlexDriver: flexDriver, PersistentVolume: "pv1", Dir: dir}}
		if diff := cmp.Diff(want, n.bridge.Lost()); diff != "" {
			t.Error(diff)
		}
		return n, dir
	}
	n, _ := lose()
	n.succeed("mount", n.podDir("p2"), options)
	if lost := n.bridge.Lost(); len(lost) > 0 {
		t.Errorf("after another mount: %+v", lost)
	}
	n, dir := lose()
	n.succeed("unmount", dir)
	if lost := n.bridge.Lost(); len(lost) > 0 {
		t.Errorf("after its unmount: %+v", lost)
	}
}
