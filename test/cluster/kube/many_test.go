package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testMany: hundreds at once, none of which waits for the requests of another.
func testMany(t *testing.T, p *controlplane.Plane) {
	const volumes = 200
	d, x := start(t, p, "node-1"), attacher{p, t}
	stop := x.run()
	defer stop()
	all := func(do func(context.Context, *csivol.Attachment) error) time.Duration {
		begun := time.Now()
		var running sync.WaitGroup
		for i := range volumes {
			running.Go(func() {
				if err := do(within(t, time.Minute), volume(fmt.Sprintf("many-%d", i), "node-1")); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		return time.Since(begun)
	}
	d.proxy.Requests()
	attached := all(func(ctx context.Context, a *csivol.Attachment) error {
		_, err := d.Attach(ctx, a)
		return err
	})
	asked := d.proxy.Requests()
	// Lists are shared; each says of all of them where they are.
	if n := asked["list volumeattachments"]; asked["create volumeattachments"] != volumes || n > volumes/2 || asked["get volumeattachments"] > volumes {
		t.Errorf("asked for %v", asked)
	}
	detached := all(d.Detach)
	t.Logf("%d attached in %v, detached in %v, with %v and then %v", volumes, attached, detached, asked, d.proxy.Requests())
	left, err := d.List(t.Context())
	left = slices.DeleteFunc(left, func(a *csivol.Attachment) bool { return !strings.HasPrefix(a.Handle, "many-") })
	if err != nil || len(left) > 0 {
		t.Errorf("%d are left, %v", len(left), err)
	}
}

// testSlow: every answer takes long, and everything works.
func testSlow(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	stop := x.run()
	defer stop()
	d.proxy.Slow(700 * time.Millisecond)
	a := volume("slow", "node-1")
	if got, err := d.Attach(within(t, 15*time.Second), a); err != nil || !got.Ours {
		t.Errorf("attach: %+v, %v", got, err)
	}
	if err := d.Detach(within(t, 15*time.Second), a); err != nil || x.get(name(a)) != nil {
		t.Errorf("detach: %v", err)
	}
}

// testElection: one leads, and another one after it.
func testElection(t *testing.T, p *controlplane.Plane) {
	d := start(t, p, "node-1")
	var mu sync.Mutex
	leading, most, turns := 0, 0, map[string]int{}
	var running sync.WaitGroup
	stops := map[string]context.CancelFunc{}
	for _, identity := range []string{"a", "b", "c"} {
		ctx, stop := context.WithCancel(t.Context())
		stops[identity] = stop
		running.Go(func() {
			d.cluster.Lead(ctx, kube.Election{Namespace: "default", Name: "test", Identity: identity, Duration: 3 * time.Second}, func(ctx context.Context) {
				mu.Lock()
				leading++
				most, turns[identity] = max(most, leading), turns[identity]+1
				mu.Unlock()
				<-ctx.Done()
				mu.Lock()
				leading--
				mu.Unlock()
			})
		})
	}
	for n := 1; n <= 3; n++ {
		var leader string
		testenv.Eventually(t, "another one leads", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for identity := range turns {
				if stops[identity] != nil {
					leader = identity
				}
			}
			return leading == 1 && len(turns) == n && leader != ""
		})
		if leader == "" {
			break
		}
		stops[leader]()
		delete(stops, leader)
	}
	for _, stop := range stops {
		stop()
	}
	running.Wait()
	if most != 1 || len(turns) != 3 {
		t.Errorf("at most %d led at once, in turn %v", most, turns)
	}
}
