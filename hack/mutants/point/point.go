// Package point is what hack/mutants writes into the code: a point is a place where the
// program can be made wrong. All points of a build are right but the one that
// the environment variable FLEX_MUTANT names.
package point

import (
	"cmp"
	"os"
	"strconv"
	"sync"
)

// The environment variables of a test program.
const (
	// Chosen has the number of the point that is wrong.
	Chosen = "FLEX_MUTANT"
	// Reached names a file that gets the number of each point that is reached, once.
	Reached = "FLEX_MUTANT_REACHED"
)

// These are set before main begins and not changed: a point costs a comparison.
var (
	chosen  = number(os.Getenv(Chosen))
	reached = newRecord(os.Getenv(Reached))
)

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// A record is the file that says what was reached.
type record struct {
	mu   sync.Mutex
	seen map[int]bool
	file *os.File
}

func newRecord(path string) *record {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil // a child in another root: what it reaches is not known
	}
	return &record{seen: map[int]bool{}, file: f}
}

func (r *record) add(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[id] {
		r.seen[id] = true
		_, _ = r.file.WriteString(strconv.Itoa(id) + "\n") // at once: programs are killed in tests
	}
}

// On reports whether a point is wrong.
func On(id int) bool {
	if reached != nil {
		reached.add(id)
	}
	return id == chosen
}

// True is a condition that is always true when its point is wrong.
func True[T ~bool](id int, c T) T { return c || T(On(id)) }

// False is a condition that is never true when its point is wrong.
func False[T ~bool](id int, c T) T { return c && T(!On(id)) }

// Less is a < b, and takes equal values the other way when its point is wrong.
func Less[T cmp.Ordered](id int, a, b T) bool { return a < b || a == b && On(id) }

// LessOrEqual is a <= b; see Less.
func LessOrEqual[T cmp.Ordered](id int, a, b T) bool { return a < b || a == b && !On(id) }

// Greater is a > b; see Less.
func Greater[T cmp.Ordered](id int, a, b T) bool { return Less(id, b, a) }

// GreaterOrEqual is a >= b; see Less.
func GreaterOrEqual[T cmp.Ordered](id int, a, b T) bool { return LessOrEqual(id, b, a) }

// Call makes a call, but not when its point is wrong.
func Call(id int, call func() error) error {
	if On(id) {
		return nil
	}
	return call()
}

// Swallow returns err, or nil when its point is wrong.
func Swallow(id int, err error) error {
	if err != nil && On(id) {
		return nil
	}
	return err
}

// Exchange returns a, or another constant of its type when its point is wrong.
func Exchange[T any](id int, a, b T) T {
	if On(id) {
		return b
	}
	return a
}
