// Package kube is what flex2csi wants of the API server: VolumeAttachments,
// which the external-attacher of a CSI driver works off, and what CSIDriver,
// PersistentVolume, Secret and ServiceAccount objects say. It is the only
// package that knows client-go; the others see structs of internal/csivol.
//
// The API server may be away, slow, or of another opinion. So nothing here
// blocks the start of a program, no request is without a deadline, and what a
// call needs again and again is in memory: kept up to date by watches where it
// changes, asked for once where it does not.
package kube
