// Package fusedriver is a CSI driver that serves its volumes in its own
// process, as those of s3 and other network filesystems are: when it dies, its
// mounts are dead (ENOTCONN), and stay dead when it is started again. What was
// written is in a directory, for each volume one.
//
//	fusedriver --dir /tmp/volumes --endpoint unix:///tmp/fuse.sock
//
// It has a node service with stage and publish: NodeStageVolume mounts,
// NodePublishVolume binds. There is no controller service, so that there is
// nothing to attach, and a volume is made when it is staged first.
//
// The only cure for a dead volume is NodeUnpublishVolume and
// NodeUnstageVolume, which work on dead mounts, and then from the beginning;
// the other way round each call says what is dead.
package fusedriver
