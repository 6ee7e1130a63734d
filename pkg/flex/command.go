package flex

// Command is the name of a callout: the first argument that the kubelet gives.
type Command string

// The callouts, by the names in driver-call.go:30-49. KCM is kube-controller-manager. File
// names without a directory are in pkg/volume/flexvolume of Kubernetes v1.37.1; OG is
// pkg/volume/util/operationexecutor/operation_generator.go. "Without" is what happens after
// "Not supported", which is the answer of a [Driver] that does not have the callout.
const (
	// CommandInit is answered by [Run], with the driver's Capabilities. It must be
	// instantaneous and cannot fail, since the kubelet runs it under the lock of
	// all volume plugins (pkg/volume/plugins.go:639-654) and does not register a
	// driver if its init fails.
	CommandInit Command = "init"

	// CommandGetVolumeName answers VolumeName, a cluster-wide name of the volume.
	//
	// Gets: Options, though after a restart of the kubelet without any of the
	// volume's own (plugin.go:268-280). Called: by kubelet and KCM, on nearly
	// every operation of a driver with Attach (plugin.go:125-144, 309-317). The name
	// is ignored, the PersistentVolume's is used; an error fails the operation.
	// Without: the same without a process each time, which is best.
	CommandGetVolumeName Command = "getvolumename"

	// CommandAttach makes the volume available to the node NodeName and answers
	// Device, which may be "".
	//
	// Gets: Options without secrets, NodeName. Called: by KCM, perhaps on
	// another machine with nothing of the node in sight (attacher.go:37-50,
	// OG:273). Must: refuse what is attached to another node, unless it may be
	// shared. Device comes back in waitforattach. After an error KCM calls
	// detach later. Without: success, and the device is "".
	CommandAttach Command = "attach"

	// CommandIsAttached answers Attached: whether the volume is attached to NodeName.
	//
	// Gets: Options without secrets, NodeName; old kubelets gave the name
	// first, either order is parsed. Called: by KCM, once a minute per volume
	// (attacher.go:100-122, OG:220). Must: return an error when it does not
	// know, since false has the volume attached again. Without: never asked again,
	// taken for attached.
	CommandIsAttached Command = "isattached"

	// CommandWaitForAttach waits until the volume has arrived on this node and answers
	// its Device, which replaces the one from attach.
	//
	// Gets: Device, Options without secrets. Called: by the kubelet with a
	// capability of Attach, whenever a pod is set up, mounted or not
	// (attacher.go:53-65, OG:519). It is the only callout with a timeout, 10
	// minutes, after which the kubelet sends SIGTERM and, if the process is
	// there 10 s later, crashes (driver-call.go:128-133). Without: success with
	// the same device.
	CommandWaitForAttach Command = "waitforattach"

	// CommandMountDevice mounts the device at Dir, the device mount path, for all
	// pods of this node. It may format the device.
	//
	// Gets: Dir, which exists, Device, Options without secrets, pod or fsGroup.
	// Called: by the kubelet with a capability of Attach, if Dir is no mount
	// point (attacher.go:73-98, OG:546). Must: leave no mount at Dir when it
	// fails, since unmountdevice is not called then and a mount that is there
	// is taken for success the next time. Without: if Device is not "", the
	// kubelet formats it if blank and mounts it (attacher-defaults.go:50-74).
	CommandMountDevice Command = "mountdevice"

	// CommandMount makes the volume visible at Dir, the pod's volume directory.
	//
	// Gets: Dir, which exists, Options with secrets, pod and fsGroup. Called:
	// by the kubelet, if Dir is no mount point (mounter.go:48-104, OG:586);
	// for two pods of a node in parallel. Must: honour ReadOnly; mount at Dir
	// last, when all else is done; and leave no mount there when it fails,
	// since unmount is not called then. Without: the kubelet binds the device mount
	// path, without ReadOnly (mounter-defaults.go:29-41).
	CommandMount Command = "mount"

	// CommandUnmount takes away what mount did.
	//
	// Gets: Dir, nothing else. Called: by the kubelet, if Dir exists, mounted
	// or not, healthy or not, after a reboot too (unmounter.go:45-73, OG:769).
	// Must: succeed if nothing is mounted, leave no mount and no file in Dir,
	// because the kubelet removes it by rmdir, and not depend on any service.
	// After an error it is called again. Without: the kubelet unmounts.
	CommandUnmount Command = "unmount"

	// CommandUnmountDevice takes away what mountdevice did.
	//
	// Gets: Dir, the device mount path, nothing else. Called: by the kubelet
	// with a capability of Attach, when no pod of the node uses the volume any
	// more, but only if Dir is a mount point (detacher.go:53-94, OG:869).
	// Must: as unmount. Without: the kubelet unmounts.
	CommandUnmountDevice Command = "unmountdevice"

	// CommandDetach takes the volume away from the node NodeName.
	//
	// Gets: VolumeName, the PersistentVolume's, and NodeName; no options, and
	// the PersistentVolume may be gone. Called: by KCM, when no pod wants it,
	// and 6 minutes after the node became unhealthy even if the volume is still
	// in use there (detacher.go:39-50, OG:399). Must: succeed if it is not
	// attached. Without: success.
	CommandDetach Command = "detach"

	// CommandExpandVolume makes the volume NewSize bytes large, not its filesystem.
	//
	// Gets: Options without secrets, Dir without a meaning, NewSize, OldSize.
	// Called: not in this version (expander.go:27-44;
	// pkg/controller/volume/expand/expand_controller.go:118 gives no prober).
	// Without: success without anything done (expander-defaults.go:36-39), so
	// rather return an error.
	CommandExpandVolume Command = "expandvolume"

	// CommandExpandFS makes the volume and its filesystem NewSize bytes large. The
	// PersistentVolume already has the new capacity, but expandvolume was not
	// called before.
	//
	// Gets: Options without secrets; Dir, the pod's volume directory, not the
	// device mount path; Device, "" without a capability of Attach; NewSize,
	// OldSize. Called: by the kubelet on every node with a pod of the volume,
	// after mount or while the pod runs (expander.go:46-71, OG:2122,
	// pkg/volume/util/operationexecutor/node_expander.go:161). Must: succeed
	// only when the size is there. Without: the kubelet runs resize2fs or
	// xfs_growfs on Device (expander-defaults.go:43-59). Without a Device it takes the
	// volume for unformatted, and reports success with nothing grown: with Attach false
	// have the callout, if only to return an error.
	CommandExpandFS Command = "expandfs"
)

// Commands returns all callouts in the order of a volume's life.
func Commands() []Command {
	table := signatures()
	commands := make([]Command, 0, len(table))
	for _, s := range table {
		commands = append(commands, s.command)
	}
	return commands
}

// Known reports whether c is a callout of the FlexVolume protocol.
func (c Command) Known() bool {
	_, ok := signatureOf(c)
	return ok
}
