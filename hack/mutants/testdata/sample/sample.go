// Package sample has what hack/mutants is tested with: a test of it notices some mutants.
package sample

import "errors"

// A Phase is a constant with others of its type.
type Phase int

// The phases.
const (
	Begun Phase = iota
	Ended
)

var errNegative = errors.New("negative")

func check(n int) error {
	if n < 0 {
		return errNegative
	}
	return nil
}

// Next is noticed whole by the test.
func Next(n int, last bool) (Phase, error) {
	if err := check(n); err != nil {
		return Begun, err
	}
	if n > 3 && last {
		return Ended, nil
	}
	return Begun, nil
}

// Unnoticed has no test.
func Unnoticed(list []int) (sum int) {
	for i := 0; i < len(list); i++ {
		sum += list[i]
	}
	return sum
}
