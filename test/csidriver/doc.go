// Package csidriver is a small CSI driver of its own: identity, controller and
// node services, volumes that are sparse disk images behind loop devices, real
// mounts. It is what the bridge's tests and the demo run against.
//
// It is an example, not a product: all nodes that it knows are this machine,
// and its storage is one directory. Within that it does what the CSI
// specification v1.13.0 says, and is stricter with its caller than most
// drivers are: it refuses to unstage what is published, to detach what is
// staged, and a volume context that is not the volume's own.
//
// # State
//
// The directory is the state; nothing is kept in memory, so a driver that was
// killed goes on where it was, and two drivers (two nodes) may share one
// directory.
//
//	volumes/<id>.img         the disk
//	volumes/<id>.json        the volume; without it there is no volume
//	nodes/<node>/<id>.json   what was asked for at that node: the mount table
//	                         says whether it is so
//	lock                     one byte for each volume
//
// # Order of interceptors
//
// A call goes through Config.Outer, the locks of its volume, Config.Inner and
// then to the service. So what Config.Inner does (package fault) holds the
// locks as a slow storage system would. Meanwhile calls of its side (controller
// or node) for the same volume are answered with ABORTED, and those of the other
// side wait for a second first.
package csidriver
