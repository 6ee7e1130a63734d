package crash

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// nth kills the driver when it has made its nth system call of a class.
type nth struct {
	class class
	left  int
}

func (n *nth) after(s step) target {
	if s.program != "flexdriver" || s.class != n.class {
		return nobody
	}
	if n.left--; n.left == 0 {
		return driver
	}
	return nobody
}

// nthWrite kills when the nth write of a child has been made: the driver, with
// which the child must die, or the child alone.
type nthWrite struct {
	program string
	left    int
	who     target
}

func (n *nthWrite) after(s step) target {
	if s.program != n.program || !isWrite(s) {
		return nobody
	}
	if n.left--; n.left == 0 {
		return n.who
	}
	return nobody
}

// isWrite: a child may have changed the disk.
func isWrite(s step) bool {
	verb, _, _ := strings.Cut(s.what, " ")
	return s.class == changing && slices.Contains([]string{"write", "pwrite", "pwritev", "writev", "ioctl", "fallocate", "fsync", "fdatasync", "ftruncate"}, verb) && strings.Contains(s.what, "/dev/loop")
}

// pointsOf chooses the kill points among the system calls of an undisturbed
// run: all that change the world, and a sample of those that look.
func pointsOf(steps []step, victim call) []point {
	var points []point
	numbers := map[class]int{}
	sample, last := lookingSample(steps), ""
	for _, s := range steps {
		if s.program != "flexdriver" {
			continue
		}
		numbers[s.class]++
		n := numbers[s.class]
		repeated := s.what == last // a file that is read piece by piece
		last = s.what
		if s.class == looking && (repeated || n%sample != 0) {
			continue
		}
		variants := variantsOf(victim, len(points))
		if s.class == looking && !all() {
			variants = variants[:1]
		}
		points = append(points, point{
			name:     s.what,
			variants: variants,
			tracer:   func() *tracer { return &tracer{victim: &nth{class: s.class, left: n}} },
		})
	}
	return points
}

// lookingSample says which of the calls that look are points: every such one.
func lookingSample(steps []step) int {
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
func childPoints(steps []step, victim call) []point {
	programs := map[string][]step{}
	for _, s := range steps {
		if s.program != "flexdriver" && isWrite(s) {
			programs[s.program] = append(programs[s.program], s)
		}
	}
	var points []point
	for program, writes := range programs {
		for _, n := range chosen(writes) {
			for _, who := range []target{driver, child} {
				name := fmt.Sprintf("write %d of %d of %s (%s)", n, len(writes), program, writes[n-1].what)
				if who == child {
					name += ", which dies alone"
				}
				points = append(points, point{
					name:     name,
					variants: childVariants(victim, len(points)/2),
					tracer: func() *tracer {
						return &tracer{follow: true, victim: &nthWrite{program: program, left: n, who: who}}
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
func chosen(writes []step) []int {
	var numbers []int
	const some = 8
	for n := 1; n <= len(writes); n++ {
		torn := strings.HasPrefix(writes[n-1].what, "write ")
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
			tracer:   func() *tracer { return &tracer{follow: follow, killAfter: after} },
		})
	}
	return points
}
