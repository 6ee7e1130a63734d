//go:build !linux

package journal

import "errors"

// ProcessID fails: these IDs are of Linux. The next migration waits for the end of the Lease of one
// that was killed.
func ProcessID() (string, error) { return "", errors.ErrUnsupported }

// ProcessDead returns false: a process of a node is on another machine.
func ProcessDead(string) bool { return false }
