//go:build race

package lifecycle

// raced: this is a test with the race detector.
const raced = true
