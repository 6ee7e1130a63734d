// Package kube makes flex2csi's requests to the API server: it creates
// VolumeAttachments, for the external-attacher of a CSI driver, and reads CSIDriver,
// PersistentVolume, Secret and ServiceAccount objects. It translates them to the
// structs of internal/csivol.
//
// The API server may be unavailable, slow, or refuse a request. So nothing here
// blocks the start of a program, each request has a deadline, and what calls need
// often is in memory: informers keep it up to date where it changes.
//
// attach.go and detach.go create and delete VolumeAttachments. Both read one by get.go and
// wait for it by wait.go; multiattach.go looks for those to other nodes.
package kube
