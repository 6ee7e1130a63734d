package lifecycle

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A model explores one configuration, breadth-first: the first way that is found to
// a state is a shortest one. Of a state that was seen a 64-bit hash is kept; of ten
// million states two have the same one with a probability of 1 in 400,000.
type model struct {
	c *config
	guarding
	weak    weak
	planner Planner
	kinds   []StepKind
	rules   []string
	used    map[string]bool
	decided map[snapshot]decision

	seed    maphash.Seed
	known   map[uint64]bool
	ways    []way
	settled [podCount + 1]map[uint64]bool
	settles bool // what can be done was done, some of it without success: time passes
	most    int  // states; 0: all of them
	bounds  budget

	states, transitions int
}

// A way is how a state was reached first.
type way struct {
	from  int32
	label label
}

// A label is a line of a story.
type label struct {
	node, pod     int // pod 0: none; node -1: none
	text, outcome string
	rule          uint8
}

// A moveKind says who makes a move.
type moveKind uint8

const (
	progress moveKind = iota // it happens, sooner or later
	patience                 // a caller stops waiting
	hours                    // the grace period passes
	choice                   // a user or a controller changes what it wants
	fault                    // bounded
)

// A move is one transition.
type move struct {
	kind  moveKind
	label label
	to    world
	event event
}

// An event is what invariants want to know of a transition.
type event struct {
	step, decided            StepKind
	stepPlace                uint8
	stepNode, decidedNode    int
	ended, ok, awaited       bool
	found, circles, detached bool
	lost                     bool // the kubelet has deleted what is in the volume
	forgotten                bool // a VolumeAttachment
	undoFailed               bool // what the operation has mounted could not be unmounted
	goal                     Goal
	place, rule              uint8
}

// moves are those from one state.
type moves struct {
	from world
	list []move
}

func (g *moves) add(kind moveKind, l label, f func(*world, *event)) {
	g.list = append(g.list, move{kind: kind, label: l, to: g.from})
	mv := &g.list[len(g.list)-1]
	to := g.from
	f(&to, &mv.event)
	mv.to = to
}

// addChanged adds a move if it changes anything.
func (g *moves) addChanged(kind moveKind, l label, f func(*world, *event)) {
	g.add(kind, l, f)
	mv := &g.list[len(g.list)-1]
	to := mv.to
	to.left = g.from.left
	if to == g.from && !mv.event.circles {
		g.list = g.list[:len(g.list)-1]
	}
}

// without is a planner that goes without some rules.
func without(names ...string) Planner {
	p := Planner{instead: map[string]func(*situation) *situation{}}
	for _, name := range names {
		p.instead[name] = func(*situation) *situation { return nil }
	}
	return p
}

func newModel(c *config, names ...string) *model {
	m := &model{
		c: c, planner: without(names...), kinds: kinds(), rules: []string{""}, used: map[string]bool{},
		decided: map[snapshot]decision{}, seed: maphash.MakeSeed(), known: map[uint64]bool{},
	}
	for i := range m.settled {
		m.settled[i] = map[uint64]bool{}
	}
	return m
}

func (m *model) moves(w world, g *moves) []move {
	g.from, g.list = w, g.list[:0]
	for i := range m.c.nodes {
		m.cluster(g, i)
		m.daemon(g, i)
		m.kubelet(g, i)
		if m.c.migrates {
			m.csi(g, i)
		}
	}
	m.happens(g)
	return g.list
}

func (m *model) hash(w world) uint64 { return maphash.Comparable(m.seed, w) }

// A violation is an invariant that does not hold, and the way there.
type violation struct {
	invariant invariant
	story     []string
}

func (v *violation) String() string {
	return fmt.Sprintf("%s: %s\n%s", v.invariant.name, v.invariant.sentence, strings.Join(v.story, "\n"))
}

type place struct {
	world world
	id    int32
}

// explore looks at all states within the budget, until an invariant does not hold.
func (m *model) explore(b budget) *violation {
	m.bounds = b
	start := m.c.start(b)
	m.known[m.hash(start)] = true
	m.ways = append(m.ways, way{from: -1})
	m.states = 1
	level, next := []place{{start, 0}}, []place(nil)
	var g moves
	for len(level) > 0 {
		for _, at := range level {
			for _, mv := range m.moves(at.world, &g) {
				m.transitions++
				if v := m.broken(&at.world, mv, at.id); v != nil {
					return v
				}
				h := m.hash(mv.to)
				if m.known[h] {
					continue
				}
				m.known[h] = true
				m.states++
				id := int32(len(m.ways))
				m.ways = append(m.ways, way{at.id, mv.label})
				next = append(next, place{mv.to, id})
				if v := m.liveness(mv.to, id); v != nil {
					return v
				}
				if m.most > 0 && m.states >= m.most {
					return nil
				}
			}
		}
		level, next = next, level[:0]
	}
	return nil
}

func (m *model) broken(before *world, mv move, id int32) *violation {
	for _, inv := range invariants() {
		if inv.broken(m, before, &mv) {
			return &violation{inv, append(m.story(id), m.line(mv.label))}
		}
	}
	return nil
}

// story tells how a state was reached.
func (m *model) story(id int32) (lines []string) {
	for ; id > 0; id = m.ways[id].from {
		lines = append(lines, m.line(m.ways[id].label))
	}
	slices.Reverse(lines)
	return lines
}

func (m *model) line(l label) string {
	var s strings.Builder
	if l.node >= 0 {
		fmt.Fprintf(&s, "node-%d ", l.node+1)
	}
	if l.pod > 0 {
		fmt.Fprintf(&s, "pod %s: ", podName(l.pod-1))
	}
	s.WriteString(l.text)
	if l.rule != 0 {
		fmt.Fprintf(&s, " (rule %s)", m.rules[l.rule])
	}
	s.WriteString(l.outcome)
	return s.String()
}
