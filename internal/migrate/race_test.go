//go:build race

package migrate_test

// stride is how many requests lie between two that fail: journeys take five times as long with
// the race detector, and make test-unit has it. Without it each request fails in turn.
const stride = 5
