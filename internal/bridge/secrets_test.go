package bridge_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// seeing is a driver that records its RPCs.
type seeing struct {
	bridge.Service
	deadlines map[string]time.Duration
	detached  map[string]flex.Secret
}

func (s *seeing) see(ctx context.Context, method string) {
	if deadline, ok := ctx.Deadline(); ok {
		s.deadlines[method] = time.Until(deadline).Round(time.Minute)
	}
}

func (s *seeing) NodeStage(ctx context.Context, r csivol.StageRequest) error {
	s.see(ctx, "NodeStage")
	return s.Service.NodeStage(ctx, r)
}

func (s *seeing) NodeUnstage(ctx context.Context, handle, path string) error {
	s.see(ctx, "NodeUnstage")
	return s.Service.NodeUnstage(ctx, handle, path)
}

func (s *seeing) ControllerUnpublish(ctx context.Context, handle, node string, secrets map[string]flex.Secret) error {
	s.see(ctx, "ControllerUnpublish")
	s.detached = secrets
	return s.Service.ControllerUnpublish(ctx, handle, node, secrets)
}

func watch(n *node) (*seeing, *bridge.FlexDriver) {
	d := n.bridge.Drivers.All[0]
	s := &seeing{Service: n.driver, deadlines: map[string]time.Duration{}}
	d.Service = s
	return s, d
}

// TestTimeouts: each RPC has the deadline of its driver.
func TestTimeouts(t *testing.T) {
	n := newNode(t)
	s, d := watch(n)
	d.Timeout = 5 * time.Minute
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	for method, want := range map[string]time.Duration{"NodeStage": 5 * time.Minute, "NodeUnstage": 5 * time.Minute, "ControllerUnpublish": 5 * time.Minute} {
		if got := s.deadlines[method]; got != want {
			t.Errorf("%s has %v, want %v", method, got, want)
		}
	}
}

// TestDetachSecrets: detach gets those of attach, as far as they are there.
func TestDetachSecrets(t *testing.T) {
	n := newNode(t)
	s, d := watch(n)
	err := errors.New("the file is gone")
	d.AttachSecrets = func(context.Context) (map[string]flex.Secret, error) {
		return map[string]flex.Secret{"a": flex.NewSecret([]byte("b"))}, err
	}
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	if r := n.record(); !strings.Contains(r.LastError, "the file is gone") {
		t.Errorf("the record is %+v", r)
	}
	err = nil
	n.reconcile()
	if string(s.detached["a"].Reveal()) != "b" {
		t.Error("ControllerUnpublish got no secret")
	}
	n.empty()
}

// TestStageInMount: mountdevice does not say for which pod, and stages nothing.
func TestStageInMount(t *testing.T) {
	n := newNode(t)
	dir, device := n.podDir("p1"), n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", device, "csi:h1", options)
	if got, want := n.driver.called(), "ControllerPublish"; got != want {
		t.Errorf("attach and mountdevice called %s, want %s", got, want)
	}
	if !n.mounts.mounted[device] {
		t.Error("there is no marker, so unmountdevice would not be called")
	}
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", device)
	n.succeed("detach", "pv1", "node-1")
	if got, want := n.driver.called(), "NodeStage NodePublish NodeUnpublish NodeUnstage ControllerUnpublish"; got != want {
		t.Errorf("the rest called %s, want %s", got, want)
	}
	n.empty()
}
