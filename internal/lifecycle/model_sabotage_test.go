package lifecycle

import (
	"fmt"
	"slices"
	"testing"
)

// allRules are the names of those of all tables. A name in several tables is one rule: it is
// taken out of all of them.
func allRules() (names []string) {
	for _, t := range allTables() {
		for _, rule := range rulesOf(t) {
			if rule.Name != "" && !slices.Contains(names, rule.Name) {
				names = append(names, rule.Name)
			}
		}
	}
	return names
}

// TestSabotage takes the rules out one at a time, and a test has to notice: a story that
// has found a fault before, the configuration that is known to miss the rule, its scene,
// or else any configuration.
func TestSabotage(t *testing.T) {
	for _, rule := range allRules() {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			if by := noticedBy(rule); by != "" {
				t.Logf("| %s | %s |", rule, by)
				return
			}
			t.Errorf("| %s | nothing notices that this rule is not there: is it needed? |", rule)
		})
	}
}

func noticedBy(rule string) string {
	names := together(rule)
	for _, s := range toldStories() {
		if _, v := newModel(configOf(s.config), names...).tell(s); v != nil {
			return fmt.Sprintf("%s | %d | %s, as in the story %s", v.invariant.name, len(v.story), s.config, s.name)
		}
	}
	if name := missedIn(rule); name != "" {
		return missed(configOf(name), names)
	}
	for _, s := range scenes() {
		if _, right := s.ask(without(names...)); s.rule == rule && !right {
			return "scene | 1 | " + s.sentence
		}
	}
	for _, c := range configs() {
		if by := missed(c, names); by != "" {
			return by
		}
	}
	return ""
}

func missed(c *config, names []string) string {
	m := newModel(c, names...)
	m.most = mostShort
	v := m.explore(c.short)
	if v == nil {
		return ""
	}
	return fmt.Sprintf("%s | %d | %s", v.invariant.name, len(v.story), c.name)
}
