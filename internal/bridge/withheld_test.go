package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// told notes what a driver is told, and answers attach with a secret.
type told struct {
	bridge.Service
	attached int
	flags    []string
	context  map[string]string
	publish  map[string]string
	expand   []string
}

func (s *told) ControllerPublish(ctx context.Context, r csivol.AttachRequest) (map[string]string, error) {
	s.attached++
	_, err := s.Service.ControllerPublish(ctx, r)
	return map[string]string{"device": "d", "chapPassword": "canary-attach"}, err
}

func (s *told) NodePublish(ctx context.Context, r csivol.PublishRequest) error {
	s.flags, s.context, s.publish = r.Capability.MountFlags, r.Context, r.PublishContext
	return s.Service.NodePublish(ctx, r)
}

func (s *told) NodeExpand(ctx context.Context, r csivol.ExpandRequest) error {
	s.expand = r.Capability.MountFlags
	return s.Service.NodeExpand(ctx, r)
}

// listen makes a node's volumes have secrets in their options.
func listen(n *node) *told {
	s := &told{Service: n.driver}
	d := n.bridge.Drivers.All[0]
	d.Service = s
	d.Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.MountFlags = []string{"noatime", "password=" + o.User["password"]}
		v.Context = map[string]string{"share": o.User["share"], "accountKey": o.User["password"]}
		return v, err
	}
	return s
}

func secretOptions(password, share string) string {
	return strings.Replace(options, `"volumeHandle"`, `"password":"`+password+`","share":"`+share+`","volumeHandle"`, 1)
}

// TestSecretsInOptions: what looks secret in the options of a volume is in no
// state file, and a daemon that was restarted tells it to the driver all the
// same, from the next call.
func TestSecretsInOptions(t *testing.T) {
	n := newNode(t)
	listen(n)
	n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
	n.noCanaries()

	n.start("boot-1")
	s := listen(n)
	if answer := n.call("mount", n.podDir("p2"), secretOptions("canary", "//other")); answer.Status != flex.StatusFailure || answer.Code != flex.CodeAlreadyExists {
		t.Errorf("other options of the same volume: %+v", answer)
	}
	n.succeed("mount", n.podDir("p2"), secretOptions("canary", "//a/b"))
	want := &told{
		attached: 1, // to hear the publish context again
		flags:    []string{"noatime", "password=canary"},
		context:  map[string]string{"share": "//a/b", "accountKey": "canary"},
		publish:  map[string]string{"device": "d", "chapPassword": "canary-attach"},
	}
	s.Service = nil
	if diff := cmp.Diff(want, s, cmp.AllowUnexported(told{})); diff != "" {
		t.Errorf("the driver is told (-want +got):\n%s", diff)
	}
	n.noCanaries()
	s.Service = n.driver
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestTearDownNeedsNoSecret: a restart does not keep a volume from going.
func TestTearDownNeedsNoSecret(t *testing.T) {
	n := newNode(t)
	listen(n)
	n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
	n.start("boot-1")
	s := listen(n)
	n.succeed("unmount", n.podDir("p1"))
	if s.attached > 0 {
		t.Error("attached again in order to detach")
	}
	n.empty()
}

// TestExpandAfterRestart: the driver never sees a mask.
func TestExpandAfterRestart(t *testing.T) {
	for share, want := range map[string][]string{
		"//a/b":   {"noatime", "password=canary"},
		"//other": {"noatime"}, // does not agree, so it tells nothing
	} {
		n := newNode(t)
		listen(n)
		n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
		n.start("boot-1")
		s := listen(n)
		n.succeed("expandfs", secretOptions("canary", share), "csi:h1", n.podDir("p1"), "2000", "1000")
		if diff := cmp.Diff(want, s.expand); diff != "" {
			t.Errorf("%s: %s", share, diff)
		}
	}
}

func (n *node) noCanaries() {
	n.t.Helper()
	dir := filepath.Join(n.dir, "state")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		n.t.Fatal(entries, err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			n.t.Fatal(err)
		}
		if strings.Contains(string(text), "canary") {
			n.t.Errorf("%s has a secret:\n%s", e.Name(), text)
		}
	}
}

// TestNoCallNoSecret: what the bridge does by itself after a restart, it does
// not do with half of what the driver was told.
func TestNoCallNoSecret(t *testing.T) {
	n := newNode(t)
	listen(n)
	n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
	n.start("boot-1")
	s := listen(n)
	n.bridge.Drivers.All[0].Policy = fixed(bridge.Policy{Republish: true})
	n.driver.called()
	n.reconcile()
	n.die()
	n.reconcile()
	if got := n.driver.called(); got != "" || s.flags != nil {
		t.Errorf("%s was called without the secrets", got)
	}
	if r := n.record(); r.StageDead == "" {
		t.Errorf("what is dead is not reported: %+v", r)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestSecretsFromPersistentVolume: where the PersistentVolume can be read, and tells
// what the file does not hold, mounts are repaired without a call. One that says
// something else by now tells nothing.
func TestSecretsFromPersistentVolume(t *testing.T) {
	for share, repaired := range map[string]bool{"//a/b": true, "//other": false, "": false} {
		n := newNode(t)
		listen(n)
		n.succeed("mount", n.podDir("p1"), secretOptions("canary", "//a/b"))
		n.start("boot-1")
		s := listen(n)
		d := n.bridge.Drivers.All[0]
		d.RepairInUse = true
		d.Read = func(ctx context.Context, pv string) (*csivol.Volume, error) {
			if share == "" {
				return nil, flex.Errorf(flex.CodeUnavailable, "no API server")
			}
			return d.Map(ctx, flex.Options{VolumeName: pv, User: map[string]string{"volumeHandle": "h1", "share": share, "password": "canary"}})
		}
		n.reconcile()
		n.die()
		n.reconcile()
		if got := s.flags != nil; got != repaired {
			t.Errorf("%q: repaired %t, want %t", share, got, repaired)
		}
		if repaired && (s.context["accountKey"] != "canary" || s.flags[1] != "password=canary") {
			t.Errorf("the driver is told %v, %v", s.context, s.flags)
		}
		n.noCanaries()
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// clumsy is a driver's client that panics with what it was told.
type clumsy struct{ bridge.Service }

func (clumsy) NodeStage(_ context.Context, r csivol.StageRequest) error {
	panic("canary " + r.Handle)
}

// TestPanic: it is told where, and not with what.
func TestPanic(t *testing.T) {
	n := newNode(t)
	var log bytes.Buffer
	n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
	n.bridge.Drivers.All[0].Service = clumsy{n.driver}
	answer := n.call("mount", n.podDir("p1"), options)
	if answer.Status != flex.StatusFailure || !strings.Contains(answer.Message, "panicked") {
		t.Errorf("mount answers %+v", answer)
	}
	if !strings.Contains(log.String(), "withheld_test.go") {
		t.Errorf("the log does not say where: %s", &log)
	}
	if all := answer.Message + log.String(); strings.Contains(all, "canary") {
		t.Errorf("it is told with what: %s", all)
	}
	n.bridge.Drivers.All[0].Service = n.driver
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}
