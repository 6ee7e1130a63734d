// Package install puts a FlexVolume driver into the kubelet's plugin directory,
// takes it out again and goes back to the version before, while the kubelet
// and its pods are running.
//
// The order of the steps follows from how the kubelet reads the files
// (pkg/volume/flexvolume/probe.go): names that begin with '.' are ignored; any
// other change below a driver's directory makes it run init; and a driver that
// cannot be started makes it log the whole command line, secrets included.
// So the executable is never absent, never half written and never written to:
//
//	<plugin dir>/example.com~disk/disk               the driver
//	<plugin dir>/example.com~disk/.flexdriver.json   its configuration
//	<plugin dir>/example.com~disk/.executable.prev   the version before, for Rollback,
//	<plugin dir>/example.com~disk/.flexdriver.json.prev   and its configuration
//
// A version is prepared in a dot-directory next to the driver's, and tried
// there. The first [Install] renames that directory into place. An update keeps
// links to what is there as *.old, renames the configuration and then the
// executable into place, which is the one event that the kubelet sees, runs init
// in place, and makes *.old into *.prev. If init fails, the version before
// is restored. [Uninstall] deletes in place: a directory that is renamed stays
// registered, and the kubelet would try to start it for ever.
//
// Killed at any instant, an installer leaves a driver that works: the old one or
// the new one, of which the executable is renamed last. (Between the two renames
// the old executable reads the new configuration.) The next run, under the lock
// that all installers take, finds *.old and finishes or undoes that update first.
//
// # When not to use it
//
// This is for a driver with a .flexdriver.json. It knows nothing of daemons,
// images or clusters: those who ship them call it, or flexdriver install.
package install
