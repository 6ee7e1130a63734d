// Package local does the work of the callouts for volumes that a node can
// mount by itself: disk images, block devices, network filesystems,
// directories and memory. It turns a volume's options into a [Volume], and a
// callout on it into calls of pkg/mounter.
//
// The way of a call: flex.Run calls one of the functions that
// [Backend.Driver] hands out (backend.go); it parses the options
// (parse.go, check.go), opens and locks the mount point (backend.go) and sets the volume
// up (setup.go), or takes it down (teardown.go).
//
// The only state between calls are attachment locks in the control plane
// (internal/statedir). What unmount needs is in the mount table and in sysfs.
package local
