package storage_test

import (
	"testing"
)

// runUdev starts udevd, which names the disks.
func runUdev(t *testing.T) {
	t.Helper()
	sh(t, `/lib/systemd/systemd-udevd --daemon
udevadm trigger
udevadm settle`)
}
