package lifecycle

import (
	"os"
	"testing"
	"time"
)

func configs() []*config {
	usual := budget{rpc: 2, crash: 1, restart: 1, leave: 1}
	return []*config{
		{name: "one pod", nodes: 1, pods: 1, stage: true, short: usual},
		{name: "two pods", nodes: 1, pods: 2, stage: true, short: budget{rpc: 1}},
		{name: "no stage", nodes: 1, pods: 2, short: budget{crash: 1}},
		{name: "direct", nodes: 1, pods: 1, stage: true, direct: true, short: budget{rpc: 1, crash: 1}},
		{name: "direct, callers leave", nodes: 1, pods: 2, stage: true, direct: true, short: budget{leave: 1, restart: 1}},
		{name: "controller", nodes: 1, pods: 1, route: ByControllerService, stage: true, short: usual},
		{name: "controller, two nodes", nodes: 2, pods: 2, route: ByControllerService, stage: true, short: budget{rpc: 1}},
		{name: "cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, short: budget{rpc: 1, crash: 1, away: 1, leave: 1}},
		{name: "cluster, no stage", nodes: 1, pods: 1, route: ByVolumeAttachment, short: budget{rpc: 1, crash: 1, away: 1, taken: 1}},
		{name: "cluster, two nodes", nodes: 2, pods: 2, route: ByVolumeAttachment, stage: true, short: budget{rpc: 1, crash: 1, restart: 1}},
		{name: "full disk", nodes: 1, pods: 1, route: ByControllerService, stage: true, short: budget{full: 1, crash: 1, rpc: 1}},
		{name: "full disk, callouts", nodes: 1, pods: 1, route: ByControllerService, device: true, callouts: true, stage: true, short: budget{full: 1, crash: 1}},
		{name: "full disk, cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, short: budget{full: 2, crash: 1}},
		{name: "full disk, dead mounts", nodes: 1, pods: 1, stage: true, clumsy: true, repairs: true, short: budget{full: 1, dead: 1}},
		{name: "lost records", nodes: 1, pods: 1, route: ByControllerService, stage: true, short: budget{lost: 1, crash: 1, rpc: 1}},
		{name: "lost targets", nodes: 1, pods: 2, stage: true, short: budget{lost: 1, crash: 1, leave: 1}},
		{name: "lost records, device", nodes: 1, pods: 1, route: ByVolumeAttachment, device: true, stage: true, short: budget{lost: 1, crash: 1, rpc: 1}},
		{name: "lost records, callouts", nodes: 1, pods: 1, route: ByControllerService, device: true, callouts: true, stage: true, short: budget{lost: 1, crash: 1, rpc: 1}},
		{name: "renamed node", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, short: budget{renamed: 1, rpc: 1}},
		{name: "re-created node", nodes: 1, pods: 2, route: ByVolumeAttachment, stage: true, short: budget{recreated: 1}},
		{name: "reboot", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, short: budget{rpc: 1, reboot: 1}},
		{name: "device", nodes: 1, pods: 1, device: true, stage: true, short: budget{rpc: 1, crash: 1, restart: 1}},
		{name: "device, cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, device: true, stage: true, short: budget{rpc: 1, crash: 1, restart: 1}},
		{name: "callouts", nodes: 1, pods: 1, route: ByControllerService, device: true, callouts: true, stage: true, short: budget{rpc: 1, crash: 1, restart: 1}},
		{name: "callouts, cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, device: true, callouts: true, stage: true, short: budget{rpc: 1, crash: 1, away: 1}},
		{name: "dead mounts", nodes: 1, pods: 2, stage: true, clumsy: true, repairs: true, short: budget{dead: 1}},
		{name: "dead mounts, one pod", nodes: 1, pods: 1, stage: true, clumsy: true, repairs: true, short: budget{rpc: 1, crash: 1, dead: 1}},
		{name: "dead mounts, left", nodes: 1, pods: 1, stage: true, clumsy: true, short: budget{rpc: 1, restart: 1, dead: 1}},
		{name: "dead targets", nodes: 1, pods: 1, repairs: true, short: budget{rpc: 1, dead: 2}},
		{name: "silence", nodes: 1, pods: 1, stage: true, repairs: true, short: budget{silent: 1, leave: 1, crash: 1, dead: 1}},
		{name: "old record", nodes: 1, pods: 1, route: ByControllerService, stage: true, short: budget{spoiled: 1, crash: 1, rpc: 1}},
		{name: "two volumes", nodes: 1, pods: 2, stage: true, twoVolumes: true, short: budget{}},
		{name: "other volume", nodes: 1, pods: 2, stage: true, otherVolume: true, short: budget{}},
		{name: "secrets", nodes: 1, pods: 1, stage: true, short: budget{rpc: 1, secret: 1, crash: 1}},
		{name: "driver away", nodes: 1, pods: 1, stage: true, short: budget{driver: 1, crash: 1}},
		{name: "by hand", nodes: 1, pods: 1, stage: true, short: budget{rpc: 1, taken: 1, crash: 1, restart: 1}},
		{name: "migration", nodes: 1, pods: 1, stage: true, migrates: true, short: budget{swap: 1, restart: 1}},
		{name: "migration, two pods", nodes: 1, pods: 2, stage: true, migrates: true, short: budget{swap: 1}},
		{name: "migration, cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, migrates: true, short: budget{swap: 2}},
		{name: "migration, own stage", nodes: 1, pods: 1, stage: true, ownStage: true, migrates: true, short: budget{swap: 2}},
		{name: "migration, device", nodes: 1, pods: 1, stage: true, device: true, migrates: true, short: budget{swap: 1}},
		{name: "migration, device, cluster", nodes: 1, pods: 1, route: ByVolumeAttachment, stage: true, device: true, migrates: true, short: budget{swap: 1}},
		{name: "expansion", nodes: 1, pods: 1, stage: true, expand: Features{controller: true, node: true}, short: budget{rpc: 1, crash: 1}},
		{name: "expansion, node alone", nodes: 1, pods: 1, stage: true, expand: Features{node: true, lies: true}, short: budget{rpc: 1, crash: 1}},
	}
}

// How many states of a configuration are looked at, the nearest first: in a deep run
// as many as fit into some GB. The race detector finds nothing in what runs in one
// goroutine, and makes it ten times slower.
const (
	mostShort = 15_000
	mostDeep  = 3_000_000
	mostRaced = 3_000
)

// TestModel explores all states that the bounds allow, with FLEX_MODEL=deep more.
func TestModel(t *testing.T) {
	deep := os.Getenv("FLEX_MODEL") == "deep"
	for _, c := range configs() {
		t.Run(c.name, func(t *testing.T) {
			if !deep {
				t.Parallel() // else the memory of one
			}
			m, b := newModel(c), c.short
			switch m.most = mostShort; {
			case deep:
				b, m.most = b.deep(), mostDeep
			case raced:
				m.most = mostRaced
			}
			began := time.Now()
			v := m.explore(b)
			whole := "all"
			if m.states >= m.most {
				whole = "the first"
			}
			t.Logf("%s %d states, %d transitions, %d decisions by %d rules, at most %+v, %s", whole, m.states, m.transitions, len(m.decided), len(m.used), b, time.Since(began).Round(time.Millisecond))
			if v != nil {
				t.Error(v)
			}
		})
	}
}
