// Package storage has the tests on real storage: real servers and clients in a [guest], flexdriver
// alone and through the bridge with the preset for the FlexVolume driver of that storage. make
// test-storage and, for Ceph, make test-ceph run them.
//
// The CSI drivers are those of package driver, or, if DRIVERS names a folder with their
// executables, the real ones.
package storage
