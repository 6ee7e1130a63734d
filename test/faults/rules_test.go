package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// TestOrder: the judge of the driver's log knows what is wrong.
func TestOrder(t *testing.T) {
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	type step struct {
		method, path, code string
		from, to           int // 0: never
	}
	log := func(steps []step) (list []calls.Call) {
		for _, s := range steps {
			c := calls.Call{Method: s.method, Volume: "v", Path: s.path, Code: s.code, Start: at(s.from)}
			if s.to > 0 {
				c.End = at(s.to)
			}
			list = append(list, c)
		}
		return list
	}
	stage, unstage := step{"NodeStageVolume", "s", "OK", 1, 2}, step{"NodeUnstageVolume", "s", "OK", 7, 8}
	publish, unpublish := step{"NodePublishVolume", "p", "OK", 3, 4}, step{"NodeUnpublishVolume", "p", "OK", 5, 6}
	attach := step{"ControllerPublishVolume", "", "OK", 1, 2}
	failed := func(s step, code string) step { s.code = code; return s }
	moved := func(s step, by int) step { s.from += by; s.to += by; return s }
	for name, test := range map[string]struct {
		steps  []step
		order  order
		faults string // what each fault has in it; empty: none
	}{
		"all well":                   {[]step{stage, publish, unpublish, unstage}, order{staging: true}, ""},
		"no stage":                   {[]step{publish, unpublish}, order{staging: true}, "before NodeStageVolume"},
		"stage uncertain":            {[]step{failed(stage, "Aborted"), publish, unpublish, unstage}, order{staging: true}, "before NodeStageVolume"},
		"without stages":             {[]step{publish, unpublish}, order{}, ""},
		"unstage too early":          {[]step{stage, publish, moved(unstage, -2), moved(unpublish, 4)}, order{staging: true}, "may be published"},
		"unpublish uncertain":        {[]step{stage, publish, failed(unpublish, "Internal"), unstage, moved(unpublish, 4)}, order{staging: true}, "may be published"},
		"not attached":               {[]step{stage, unstage}, order{staging: true, attaching: true}, "before ControllerPublishVolume"},
		"never unpublished":          {[]step{publish}, order{}, "never taken down"},
		"failed and never undone":    {[]step{failed(stage, "Internal")}, order{staging: true}, "never taken down"},
		"driver died, never undone":  {[]step{{"NodeStageVolume", "s", "", 1, 0}}, order{staging: true}, "never taken down"},
		"another node has it":        {[]step{failed(attach, "FailedPrecondition")}, order{attaching: true}, ""},
		"an attach that failed":      {[]step{failed(attach, "Internal")}, order{attaching: true}, "never taken down"},
		"another node, later":        {[]step{attach, failed(moved(attach, 2), "FailedPrecondition")}, order{attaching: true}, "never taken down"},
		"the record was spoilt":      {[]step{failed(publish, "Aborted")}, order{lost: []lostTarget{{at(5), "v", "p"}}}, ""},
		"another record was spoilt":  {[]step{failed(publish, "Aborted")}, order{lost: []lostTarget{{at(5), "w", "p"}}}, "never taken down"},
		"published after the damage": {[]step{failed(publish, "Aborted")}, order{lost: []lostTarget{{at(2), "v", "p"}}}, "never taken down"},
		"side by side":               {[]step{stage, {"NodeUnstageVolume", "s", "OK", 1, 3}}, order{staging: true}, "under way"},
		"by the next daemon":         {[]step{{"NodeStageVolume", "s", "OK", 1, 5}, {"NodeUnstageVolume", "s", "OK", 3, 6}}, order{staging: true, daemons: []time.Time{at(2)}}, ""},
		"rebooted":                   {[]step{stage, publish}, order{staging: true, reboots: []time.Time{at(5)}}, ""},
		"published after the reboot": {[]step{stage, publish, unpublish}, order{staging: true, reboots: []time.Time{start.Add(2500 * time.Millisecond)}}, "before NodeStageVolume"},
	} {
		got := test.order.check(log(test.steps))
		if test.faults == "" && len(got) > 0 || test.faults != "" && !strings.Contains(strings.Join(got, "\n"), test.faults) {
			t.Errorf("%s: %q, want %q", name, got, test.faults)
		}
	}
}
