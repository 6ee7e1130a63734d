package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/controlplane"
)

const (
	// envDuration and envSeed are for longer campaigns, and for one again.
	envDuration, envSeed = "CLUSTER_DURATION", "CLUSTER_SEED"
	usualDuration        = 40 * time.Second
	campaignVolumes      = 6
)

// A campaign leads volumes through lives on two nodes while everything around
// the daemons fails, and they themselves.
type campaign struct {
	w *world
	c *cluster

	lives, mounts, refused, disturbed atomic.Int64
}

// testCampaign: whatever fails, no volume is on two nodes, none is detached
// while it is staged, and in the end nothing is left.
func testCampaign(t *testing.T, c *cluster) {
	duration, err := time.ParseDuration(os.Getenv(envDuration))
	if err != nil {
		duration = usualDuration
	}
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	k := &campaign{w: newWorld(t, c, options{nodes: 2}), c: c}
	for _, n := range k.w.nodes {
		n.timeout = short
	}
	t.Logf("seed %d, %v", seed, duration)
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var work sync.WaitGroup
	for i := range campaignVolumes {
		v, r := k.w.volume(strconv.Itoa(i)), rand.New(rand.NewPCG(seed, uint64(i)))
		work.Go(func() {
			for ctx.Err() == nil {
				k.life(r, v)
			}
		})
	}
	k.disturb(ctx, rand.New(rand.NewPCG(seed, campaignVolumes)))
	work.Wait()
	k.finish()
	t.Logf("%d lives, %d mounts, %d rivals refused, %d disturbances", k.lives.Load(), k.mounts.Load(), k.refused.Load(), k.disturbed.Load())
	if k.mounts.Load() == 0 {
		t.Error("nothing was ever mounted")
	}
}

// life is that of a volume on one node, which the other one would like as well.
func (k *campaign) life(r *rand.Rand, v *volume) {
	at := r.IntN(2)
	n, rival := k.w.nodes[at], k.w.nodes[1-at]
	k.lives.Add(1)
	have := k.mount(r, n, v, "pod-a")
	if have && r.IntN(2) == 0 {
		k.mount(r, n, v, "pod-b")
	}
	if r.IntN(3) == 0 {
		if success(rival.tryMount(v, "rival")) && have {
			k.w.t.Errorf("%s is on %s and on %s", v.name, n.name, rival.name)
		} else {
			k.refused.Add(1)
		}
		k.unmount(rival, v, "rival")
	}
	k.unmount(n, v, "pod-a")
	k.unmount(n, v, "pod-b") // which may never have been there
}

// mount tries until it succeeds, or the pod is deleted meanwhile.
func (k *campaign) mount(r *rand.Rand, n *node, v *volume, pod string) bool {
	for range 1 + r.IntN(5) {
		if success(n.tryMount(v, pod)) {
			k.mounts.Add(1)
			k.checkContent(n, v, pod)
			return true
		}
	}
	return false
}

// checkContent reads what earlier lives have written.
func (k *campaign) checkContent(n *node, v *volume, pod string) {
	file := filepath.Join(n.podDir(v, pod), "owner")
	got, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		got, err = []byte(v.handle), os.WriteFile(file, []byte(v.handle), 0o600)
	}
	if err != nil || string(got) != v.handle {
		k.w.t.Errorf("%s at %s of %s: content %q, %v", v.name, pod, n.name, got, err)
	}
}

// unmount tries until it succeeds, as the kubelet does.
func (k *campaign) unmount(n *node, v *volume, pod string) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		status := n.call("unmount", n.podDir(v, pod))
		if success(status) {
			return
		}
		if time.Now().After(deadline) {
			k.w.t.Errorf("unmount of %s at %s: %+v", v.name, n.name, status)
			return
		}
	}
}

// disturb lets one thing after the other fail until ctx ends.
func (k *campaign) disturb(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		n := k.w.nodes[r.IntN(2)]
		pause := time.Duration(r.IntN(1500)) * time.Millisecond
		if err := k.disturbance(r, n, pause); err != nil {
			k.w.t.Error(err)
			return
		}
		k.disturbed.Add(1)
		time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
	}
}

func (k *campaign) disturbance(r *rand.Rand, n *node, pause time.Duration) error {
	parts := []*controlplane.Part{n.daemon, n.daemon, n.daemon, n.driver, k.w.controller, k.w.attacher, k.w.attacher, k.c.kcm, k.c.APIServer}
	choice := r.IntN(len(parts) + 6)
	if choice < len(parts) {
		part := parts[choice]
		part.Kill()
		time.Sleep(pause)
		if err := part.Start(); err != nil || part != k.w.controller {
			return err
		}
		// It ends when it has lost its driver, and the kubelet starts it again.
		return k.w.attacher.Restart()
	}
	switch choice - len(parts) {
	case 0:
		n.api.Away()
		time.Sleep(pause)
		n.api.Back()
	case 1:
		n.api.Slow(pause / 2)
		time.Sleep(pause)
	case 2:
		n.api.CutWatches()
	case 3:
		n.api.Fail(controlplane.Fault{Verb: "watch", Code: 410, Times: 2})
		n.api.CutWatches()
	default:
		codes := []int{0, 409, 429, 500, 503}
		verbs := []string{"", "create", "delete", "get", "list"}
		n.api.Fail(controlplane.Fault{
			Verb: verbs[r.IntN(len(verbs))], Code: codes[r.IntN(len(codes))], Times: 1 + r.IntN(3), After: r.IntN(2) == 0,
		})
		time.Sleep(pause)
	}
	n.api.Heal()
	return nil
}

// finish checks what is left when nothing fails any more.
func (k *campaign) finish() {
	k.w.t.Helper()
	for _, n := range k.w.nodes {
		n.wantNothing()
	}
	k.w.wantBalance()
	for _, c := range k.w.calls("ControllerUnpublishVolume") {
		if c.Code == "FailedPrecondition" {
			k.w.t.Errorf("detached while it was in use: %s", fmt.Sprint(c))
		}
	}
}
