// Package driver is a CSI driver of real storage: of NFS exports, SMB shares and whatever else has
// a [Kind]. It mounts with the programs that the usual CSI drivers of that storage use, reads their
// volume contexts and secrets, and has those of their habits that a caller meets: an NFS driver
// stages nothing, what is mounted is taken for the volume, a mount that takes too long goes on
// after its answer, no call ends early because its caller has gone. What it does not have is said with each kind. There is no controller service.
//
// It shares no code with the mounts of flexdriver, so that one does not hide the faults of the
// other.
package driver
