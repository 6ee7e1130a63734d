// Package mounter makes, verifies and removes real mounts on Linux: disks
// (with probing, formatting, checking and growing), disk images behind loop
// devices, directories, memory, and filesystems that need a mount(8) helper.
//
// # One step makes a mount visible
//
// The kubelet, like other programs, takes any mount at a mount point for a
// finished one. So a mount is prepared where no other process can see it, as a
// detached tree (fsopen, fsmount, open_tree, mount_setattr:
// mount_setattr(2), Linux 5.12), its ownership and read-only flag are set
// there, and one move_mount puts it in place. A process that is killed before
// that leaves nothing behind, since a detached tree goes with its last file
// descriptor; one that is killed after it leaves a finished mount. Kernels
// without these calls get mount(2) and an undo; see [Mounter.Classic].
//
// # The kernel counts the users
//
// A disk that is mounted at several places is mounted there by its device;
// the kernel gives all of them the same superblock and ends it with the last.
// Loop devices are attached with the autoclear flag, so they go with the last
// mount too. The package keeps no state of its own.
//
// # When not to use it
//
//   - Do not ask [Target.Mounted] before [Mounter.Unmount]: just unmount. Unmounting
//     what is not mounted succeeds.
//   - Do not stat a mount point to learn whether it is healthy: that hangs on
//     a dead server. Nothing in this package does.
//   - There is no Windows or BSD here, and no FlexVolume or CSI notion.
package mounter
