package bridge_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// told are the notices so far, as reason and whom they are for.
func (n *clusterNode) told() string {
	var all []string
	for _, notice := range n.notices {
		all = append(all, notice.Reason+" "+cmp.Or(notice.Pod.Name, notice.PersistentVolume))
		if notice.PersistentVolume != "pv1" || !strings.Contains(notice.Message, "PersistentVolume pv1") || notice.Volume.Handle == "" {
			n.t.Errorf("an event that does not name the volume: %+v", notice)
		}
	}
	n.notices = nil
	return strings.Join(all, ", ")
}

// withPod maps as for a pod.
func withPod(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
	v, err := mapOptions(ctx, o)
	v.Pod = csivol.Pod{Name: "web", Namespace: "ns", UID: "p1", ServiceAccount: "sa"}
	return v, err
}

func TestNotices(t *testing.T) {
	n := newClusterNode(t)
	n.bridge.Drivers.All[0].Map = withPod
	dir := n.podDir("p1")
	n.driver.away = final(flex.CodeUnavailable, "no socket")
	n.fail("no socket", "mount", dir, options)
	n.driver.away = nil
	n.succeed("mount", dir, options)
	n.die()
	n.reconcile()
	if got, want := n.told(), "CSIDriverUnavailable web, VolumeCorrupted web"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestNoticeOfWhatIsStuck: once, though Reconcile looks often, and also while an
// operation hangs.
func TestNoticeOfWhatIsStuck(t *testing.T) {
	n := newClusterNode(t)
	n.driver.fail["NodeStage"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.fail("late", "mount", n.podDir("p1"), options)
	n.reconcile()
	if got := n.told(); got != "" {
		t.Errorf("told %s at once", got)
	}
	records, _, err := n.store.Load()
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	n.aged(records[0])
	n.reconcile()
	if len(n.notices) != 1 || !strings.Contains(n.notices[0].Message, "late") {
		t.Errorf("told %+v", n.notices)
	}
	if got, want := n.told(), "VolumeOperationStuck pv1"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// aged starts a process that knows of a record as of an hour ago.
func (n *clusterNode) aged(r *volstate.Record) {
	n.forget()
	r.Changed = time.Now().Add(-time.Hour)
	n.bridge.Restore([]*volstate.Record{r})
	n.bridge.Grace = 2 * time.Hour
}

// TestTokens: a driver gets the tokens of the pod where it wants them. Each
// NodePublishVolume has new ones, and no file has them.
func TestTokens(t *testing.T) {
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	for _, inSecrets := range []bool{false, true} {
		n := newClusterNode(t)
		d := n.bridge.Drivers.All[0]
		d.Map = withPod
		d.Policy = fixed(bridge.Policy{Republish: true, TokensInSecrets: inSecrets, Tokens: []csivol.TokenRequest{{Audience: "vault"}}})
		made := 0
		d.Tokens = func(_ context.Context, pod csivol.Pod, requests []csivol.TokenRequest) (flex.Secret, error) {
			made++
			if pod.ServiceAccount != "sa" || requests[0].Audience != "vault" {
				t.Errorf("tokens for %+v, %+v", pod, requests)
			}
			return flex.NewSecret([]byte("canary")), nil
		}
		service := &secretive{Service: n.driver}
		d.Service = service
		n.succeed("mount", n.podDir("p1"), options)
		inContext, secret := service.context[key], string(service.secrets[key].Reveal())
		if (inContext == "canary") == inSecrets || (secret == "canary") != inSecrets {
			t.Errorf("in secrets %t: context %q, secret %q", inSecrets, inContext, secret)
		}
		n.reconcile()
		if made != 2 {
			t.Errorf("tokens were requested %d times, want 2: once more for the repetition", made)
		}
		files, _ := filepath.Glob(filepath.Join(n.dir, "state/*"))
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "canary") {
				t.Errorf("%s has the token", file)
			}
		}
		if len(files) == 0 {
			t.Error("there are no files to look at")
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// secretive notes what NodePublishVolume gets.
type secretive struct {
	bridge.Service
	context map[string]string
	secrets map[string]flex.Secret
}

func (s *secretive) NodePublish(ctx context.Context, r csivol.PublishRequest) error {
	s.context, s.secrets = r.Context, r.Secrets
	return s.Service.NodePublish(ctx, r)
}

// TestNoTokens: without them nothing is published, and nothing stays.
func TestNoTokens(t *testing.T) {
	n := newClusterNode(t)
	d := n.bridge.Drivers.All[0]
	d.Policy = fixed(bridge.Policy{Tokens: []csivol.TokenRequest{{}}})
	d.Tokens = func(context.Context, csivol.Pod, []csivol.TokenRequest) (flex.Secret, error) {
		return flex.Secret{}, flex.Errorf(flex.CodeUnavailable, "no token")
	}
	n.fail("no token", "mount", n.podDir("p1"), options)
	if got := n.driver.called(); strings.Contains(got, "NodePublish") {
		t.Errorf("called %s", got)
	}
	n.empty()
}
