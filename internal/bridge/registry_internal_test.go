package bridge

import (
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestIntervalsArePruned (N12): what was done last for a pod's directory was kept until
// the volume left the node. A volume that hundreds of jobs use never does.
func TestIntervalsArePruned(t *testing.T) {
	var g registry
	key := csivol.Key{Driver: "d", Handle: "h"}
	v := g.volume(key)
	v.record.Targets = map[string]*volstate.Target{"/pods/a": {}, "/pods/b": {}}
	g.show(v)
	for _, what := range []string{"/pods/a", "/pods/b", "stuck"} {
		g.done(key, what)
	}
	delete(v.record.Targets, "/pods/a")
	g.show(v)
	if len(v.last) != 2 || v.last["/pods/b"].IsZero() || v.last["stuck"].IsZero() {
		t.Errorf("left: %v", v.last)
	}
}
