package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestLogNamesThePod: what the reconciler says, and what it has others do, names the pod that it
// is about. One volume has two, and no call is under way.
func TestLogNamesThePod(t *testing.T) {
	var log bytes.Buffer
	n := newClusterNode(t)
	n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, pod := range []string{"p1", "p2"} {
		n.bridge.Drivers.All[0].Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
			v, err := mapOptions(ctx, o)
			v.Pod = csivol.Pod{Name: "web-" + pod, Namespace: "shop", UID: pod}
			return v, err
		}
		n.succeed("mount", n.podDir(pod), options)
	}
	n.die()
	n.reconcile()
	for _, pod := range []string{"p1", "p2"} {
		want := "persistentVolume=pv1 csiDriver=csi.example.com volumeHandle=h1 pod=shop/web-" + pod + " namespace=shop podUID=" + pod + " dir=" + n.podDir(pod) + " why="
		if got := log.String(); strings.Count(got, `msg="a mount is dead" `+want) != 1 {
			t.Errorf("no line has %s:\n%s", want, got)
		}
	}
	for _, pod := range []string{"p1", "p2"} {
		n.succeed("unmount", n.podDir(pod))
	}
	n.empty()
}
