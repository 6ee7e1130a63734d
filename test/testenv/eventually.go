package testenv

import (
	"testing"
	"time"
)

// Eventually waits until something holds, for a minute at most: far more than anything
// needs that goes on by itself.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
