package lifecycle

import (
	"slices"
	"testing"
)

// allRules are those of all tables, by name. A name in several tables is one rule:
// it is taken out of all of them.
func allRules() (names []string) {
	all := [][]Rule{
		releaseRules(), unpublishRules(), leaveRules(), unstageRules(), detachRules(AsConfigured), growRules(),
		releaseDeviceRules(), bringRules(), repairRules(), unclearRules(),
	}
	for _, goal := range append(goals(), ExpandVolume) {
		all = append(all, tables[goal])
	}
	for _, rules := range all {
		for _, r := range rules {
			if !slices.Contains(names, r.Name) {
				names = append(names, r.Name)
			}
		}
	}
	return names
}

// TestSabotage takes the rules out one at a time, and the model has to notice: in a
// story that has found a fault before, in the configuration that is known to miss the
// rule, or else in any.
func TestSabotage(t *testing.T) {
	for _, rule := range allRules() {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			if why := spared(rule); why != "" {
				t.Logf("| %s | not missed: %s |", rule, why)
				return
			}
			for _, s := range toldStories() {
				if _, v := newModel(configOf(s.config), rule).tell(s); v != nil {
					t.Logf("| %s | %s | %d | %s, as in the story %s |", rule, v.invariant.name, len(v.story), s.config, s.name)
					return
				}
			}
			for _, c := range configs() {
				if known := missedIn(rule); known != "" && known != c.name {
					continue
				}
				m := newModel(c, rule)
				m.most = mostShort
				if v := m.explore(c.short); v != nil {
					t.Logf("| %s | %s | %d | %s |", rule, v.invariant.name, len(v.story), c.name)
					return
				}
			}
			t.Errorf("| %s | no invariant notices that this rule is not there: is it needed? |", rule)
		})
	}
}
