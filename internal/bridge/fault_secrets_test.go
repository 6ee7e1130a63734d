package bridge_test

import (
	"context"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// knows has the configuration give a secret to NodeStageVolume.
func (n *node) knows(key string) {
	n.bridge.Drivers.All[0].Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.Secrets.NodeStage = map[string]flex.Secret{"key": flex.NewSecret([]byte(key))}
		return v, err
	}
}

// TestChangedSecrets: a wrong password was put right after a NodeStageVolume that
// ended uncertain and had mounted something. csi-driver-smb says OK to the next one
// and keeps the mount, so the pod got what was mounted with the wrong password.
func TestChangedSecrets(t *testing.T) {
	for _, c := range []struct{ when, second, third, want, has string }{
		{"the same", "old", "old", "NodeStage NodeStage NodePublish", "old"},
		{"changed at once", "new", "new", "NodeUnstage NodeStage NodeStage NodePublish", "new"},
		{"changed later", "old", "new", "NodeStage NodeUnstage NodeStage NodePublish", "new"},
	} {
		n := newNode(t)
		n.driver.fail["NodeStage"] = []error{final(flex.CodeDeadlineExceeded, "late"), final(flex.CodeUnavailable, "gone")}
		n.driver.after["NodeStage"] = true
		n.knows("old")
		n.succeedNot("mount", n.podDir("p1"), options)
		n.driver.called()
		n.knows(c.second)
		n.succeedNot("mount", n.podDir("p1"), options)
		n.knows(c.third)
		n.succeed("mount", n.podDir("p1"), options)
		n.expect(c.when, c.want)
		if n.driver.stagedFor != c.has {
			t.Errorf("%s: staged with %q", c.when, n.driver.stagedFor)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// TestChangedSecretsUnstageFails: the undoing is owed until it is done.
func TestChangedSecretsUnstageFails(t *testing.T) {
	n := newNode(t)
	n.driver.fail["NodeStage"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.driver.after["NodeStage"] = true
	n.knows("old")
	n.succeedNot("mount", n.podDir("p1"), options)
	n.knows("new")
	n.driver.fail["NodeUnstage"] = []error{final(flex.CodeUnavailable, "gone")}
	n.succeedNot("mount", n.podDir("p1"), options)
	n.driver.called()
	n.succeed("mount", n.podDir("p1"), options)
	n.expect("once more", "NodeUnstage NodeStage NodePublish")
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestChangedSecretsOfPods: what pods have is not taken away for a secret that has
// changed, nor is what the kubelet's CSI plugin may have.
func TestChangedSecretsOfPods(t *testing.T) {
	n := newNode(t)
	n.knows("old")
	n.succeed("mount", n.podDir("p1"), options)
	n.driver.called()
	n.knows("new")
	n.succeed("mount", n.podDir("p2"), options)
	n.expect("a second pod", "NodePublish")
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()

	n.driver.fail["NodeStage"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.driver.after["NodeStage"] = true
	n.knows("old")
	n.succeedNot("mount", n.podDir("p1"), options)
	n.takeOver()
	n.driver.called()
	n.knows("new")
	n.succeed("mount", n.podDir("p1"), options)
	n.expect("staged by the kubelet, perhaps", "NodeStage NodePublish")
}
