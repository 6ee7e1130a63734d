package crash

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// nth kills the driver when it has made its nth system call of a class.
type nth struct {
	class trace.Class
	left  int
}

func (n *nth) After(s trace.Step) trace.Target {
	if s.Program != driverProgram || s.Class != n.class {
		return trace.None
	}
	if n.left--; n.left == 0 {
		return trace.Leader
	}
	return trace.None
}

// nthWrite kills when the nth write of a child has been made: the driver, with
// which the child must die, or the child alone.
type nthWrite struct {
	program string
	left    int
	who     trace.Target
}

func (n *nthWrite) After(s trace.Step) trace.Target {
	if s.Program != n.program || !isWrite(s) {
		return trace.None
	}
	if n.left--; n.left == 0 {
		return n.who
	}
	return trace.None
}

// isWrite: a child may have changed the disk.
func isWrite(s trace.Step) bool {
	verb, _, _ := strings.Cut(s.What, " ")
	return s.Class == trace.Changing && slices.Contains([]string{"write", "pwrite", "pwritev", "writev", "ioctl", "fallocate", "fsync", "fdatasync", "ftruncate"}, verb) && strings.Contains(s.What, "/dev/loop")
}

// pointsOf chooses the kill points among the system calls of an undisturbed
// run: all that change the world, and a sample of those that look.
func pointsOf(steps []trace.Step, victim call) []point {
	var points []point
	numbers := map[trace.Class]int{}
	sample, last := lookingSample(steps), ""
	for _, s := range steps {
		if s.Program != driverProgram {
			continue
		}
		numbers[s.Class]++
		n := numbers[s.Class]
		repeated := s.What == last // a file that is read piece by piece
		last = s.What
		if s.Class == trace.Looking && (repeated || n%sample != 0) {
			continue
		}
		variants := variantsOf(victim, len(points))
		if s.Class == trace.Looking && !all() {
			variants = variants[:1]
		}
		points = append(points, point{
			name:     s.What,
			variants: variants,
			tracer:   func() *trace.Tracer { return &trace.Tracer{Name: driverProgram, Victim: &nth{class: s.Class, left: n}} },
		})
	}
	return points
}

// lookingSample says which of the calls that look are points: every such one.
func lookingSample(steps []trace.Step) int {
	const some = 6
	if all() {
		return 1
	}
	return len(steps)/some + 1
}

// variantsOf says what follows the kills at one point.
func variantsOf(victim call, n int) []variant {
	switch {
	case victim.undoes():
		return []variant{again, reversed} // the kubelet does one or the other
	case all():
		return []variant{again, later, undone}
	case n%4 == 3:
		return []variant{again, undone}
	case n%2 == 0:
		return []variant{again}
	}
	return []variant{later}
}

// childVariants says what follows the kills at one write of a child.
func childVariants(victim call, n int) []variant {
	v := []variant{again, later}
	if victim.command == flex.CommandExpandFS {
		v = append(v, skipped)
	}
	if all() {
		return v
	}
	return v[n%len(v):][:1]
}

// childPoints chooses among the writes of the programs that the driver starts.
func childPoints(steps []trace.Step, victim call) []point {
	programs := map[string][]trace.Step{}
	for _, s := range steps {
		if s.Program != driverProgram && isWrite(s) {
			programs[s.Program] = append(programs[s.Program], s)
		}
	}
	var points []point
	for program, writes := range programs {
		for _, n := range chosen(writes) {
			for _, who := range []trace.Target{trace.Leader, trace.Child} {
				name := fmt.Sprintf("write %d of %d of %s (%s)", n, len(writes), program, writes[n-1].What)
				if who == trace.Child {
					name += ", which dies alone"
				}
				points = append(points, point{
					name:     name,
					variants: childVariants(victim, len(points)/2),
					tracer: func() *trace.Tracer {
						return &trace.Tracer{Name: driverProgram, Follow: true, Victim: &nthWrite{program: program, left: n, who: who}}
					},
				})
			}
		}
	}
	return points
}

// chosen returns the numbers, from 1, of the writes that are points: the first
// and last ones, where what matters is written, and some between; or all. The
// programs of ext4 update a superblock by a few bytes at a time, with write
// instead of pwrite, and leave it torn in between: each of these counts.
func chosen(writes []trace.Step) []int {
	var numbers []int
	const some = 8
	for n := 1; n <= len(writes); n++ {
		torn := strings.HasPrefix(writes[n-1].What, "write ")
		if all() || torn || n <= 3 || n > len(writes)-4 || n%max(1, len(writes)/some) == 0 {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// timePoints kill wherever the driver and its children are at a time. follow
// finds children that survive.
func timePoints(took time.Duration, n int, follow bool) []point {
	if all() {
		n *= 10
	}
	var points []point
	for i := 1; i <= n; i++ {
		after := took * time.Duration(i) / time.Duration(n+1)
		points = append(points, point{
			name:     after.String(),
			variants: []variant{[]variant{again, later}[i%2]},
			tracer:   func() *trace.Tracer { return &trace.Tracer{Name: driverProgram, Follow: follow, KillAfter: after} },
		})
	}
	return points
}
