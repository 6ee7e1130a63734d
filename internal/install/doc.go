// Package install installs a FlexVolume driver in the kubelet's plugin directory, removes
// it, and gives its place back to the driver before, while the kubelet and its pods are
// running.
//
// The order of the steps follows from how the kubelet reads the files
// (pkg/volume/flexvolume/probe.go): names that begin with '.' are ignored; any
// other change below a driver's directory makes it run init; and a driver that
// cannot be started makes it log the whole command line, secrets included.
// So the executable is never absent, never half written and never written to:
//
//	<plugin dir>/example.com~disk/disk               the driver
//	<plugin dir>/example.com~disk/.flexdriver.json   its configuration
//	<plugin dir>/example.com~disk/.installed         of a vendor's program: that Install
//	                                                 put it there
//	<plugin dir>/.example.com~disk.original          the vendor's program that was there before,
//	                                                 for Uninstall with Restore
//
// A version is prepared and tried in a dot-directory next to the driver's. The first
// [Install] renames that directory into place. An update links the current files to *.old,
// and renames the configuration and then the executable into place: the kubelet sees only
// the latter. Then it runs init, and deletes *.old. If init fails, it restores the version
// before. [Uninstall] deletes in place: a directory that was renamed stays
// registered, and the kubelet would try to start it for ever.
//
// An installer that is killed at any time leaves a working driver, the old or the new one.
// (Between the two renames the old executable reads the new configuration.) The next run,
// under the lock of all installers, finds *.old and first completes or undoes that update.
//
// # When not to use it
//
// This is for flexdriver with its .flexdriver.json, and for a vendor's driver that is one
// file. It knows nothing of daemons, images or clusters: package onnode does, which flexdriver
// does not link.
package install
