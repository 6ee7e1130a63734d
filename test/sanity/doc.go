// Package sanity runs csi-sanity, the test suite that the CSI community has
// for drivers, against the project's own driver (test/csidriver): before our
// caller is blamed, and before our driver is trusted to judge it.
//
// It is a module of its own: csi-sanity brings ginkgo and gomega along.
package sanity
