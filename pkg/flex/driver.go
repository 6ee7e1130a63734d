package flex

import (
	"context"
	"time"
)

// Driver is a FlexVolume driver: its capabilities and a function per callout.
//
// A nil function, without a Default, means that the driver never does this. It is answered
// "Not supported" whatever the arguments, which the kubelet remembers
// (plugin.go:286-302); then it does something of its own, said below at each
// callout, that may not be what you want. For "not now" return an error.
//
// Every function gets a context that ends at the callout's deadline and at
// SIGTERM; it then has to end what it started, children too, and return within
// a second (300 ms after a signal). Every function can be called again after a
// call that completed, or that was killed on its way, and must succeed then. One
// driver's functions run in many processes at the same time, for the same volume too. An error is a Failure with its text, redacted.
//
// init needs no function: [Run] answers it with Capabilities. It must be
// instantaneous and cannot fail, since the kubelet runs it under the lock of
// all volume plugins (pkg/volume/plugins.go:639-654) and does not register a
// driver if its init fails.
//
// Below, KCM is kube-controller-manager. File names without a directory are in
// pkg/volume/flexvolume of Kubernetes v1.37.1; OG is
// pkg/volume/util/operationexecutor/operation_generator.go.
type Driver struct {
	// Capabilities answer init. The zero value denies everything, expansion too:
	// [DefaultCapabilities] has what suits most drivers.
	Capabilities Capabilities

	// GetVolumeName returns a cluster-wide name of the volume.
	//
	// Gets: Options, though after a restart of the kubelet without any of the
	// volume's own (plugin.go:268-280). Called: by kubelet and KCM, on nearly
	// every operation of a driver with Attach (plugin.go:125-144, 309-317). The name
	// is ignored, the PersistentVolume's is used; an error fails the operation.
	// Nil: the same without a process each time, which is best.
	GetVolumeName func(context.Context, *Call) (volumeName string, err error)

	// Attach makes the volume available to the node NodeName and returns the
	// device, or "".
	//
	// Gets: Options without secrets, NodeName. Called: by KCM, perhaps on
	// another machine with nothing of the node in sight (attacher.go:37-50,
	// OG:273). Must: refuse what is attached to another node, unless it may be
	// shared. Device comes back in WaitForAttach. After an error KCM calls
	// Detach later. Nil: success, and the device is "".
	Attach func(context.Context, *Call) (device string, err error)

	// IsAttached reports whether the volume is attached to NodeName.
	//
	// Gets: Options without secrets, NodeName; old kubelets gave the name
	// first, either order is parsed. Called: by KCM, once a minute per volume
	// (attacher.go:100-122, OG:220). Must: return an error when it does not
	// know, since false has the volume attached again. Nil: never asked again,
	// taken for attached.
	IsAttached func(context.Context, *Call) (attached bool, err error)

	// WaitForAttach waits until the volume has arrived on this node and returns
	// its device, which replaces the one from Attach.
	//
	// Gets: Device, Options without secrets. Called: by the kubelet with a
	// capability of Attach, whenever a pod is set up, mounted or not
	// (attacher.go:53-65, OG:519). It is the only callout with a timeout, 10
	// minutes, after which the kubelet sends SIGTERM and, if the process is
	// there 10 s later, crashes (driver-call.go:128-133). Nil: success with
	// the same device.
	WaitForAttach func(context.Context, *Call) (device string, err error)

	// MountDevice mounts the device at Dir, the device mount path, for all
	// pods of this node. It may format the device.
	//
	// Gets: Dir, which exists, Device, Options without secrets, pod or fsGroup.
	// Called: by the kubelet with a capability of Attach, if Dir is no mount
	// point (attacher.go:73-98, OG:546). Must: leave no mount at Dir when it
	// fails, since UnmountDevice is not called then and a mount that is there
	// is taken for success the next time. Nil: if Device is not "", the
	// kubelet formats it if blank and mounts it (attacher-defaults.go:50-74).
	MountDevice func(context.Context, *Call) error

	// Mount makes the volume visible at Dir, the pod's volume directory.
	//
	// Gets: Dir, which exists, Options with secrets, pod and fsGroup. Called:
	// by the kubelet, if Dir is no mount point (mounter.go:48-104, OG:586);
	// for two pods of a node in parallel. Must: honour ReadOnly; mount at Dir
	// last, when all else is done; and leave no mount there when it fails,
	// since Unmount is not called then. Nil: the kubelet binds the device mount
	// path, without ReadOnly (mounter-defaults.go:29-41).
	Mount func(context.Context, *Call) error

	// Unmount takes away what Mount did.
	//
	// Gets: Dir, nothing else. Called: by the kubelet, if Dir exists, mounted
	// or not, healthy or not, after a reboot too (unmounter.go:45-73, OG:769).
	// Must: succeed if nothing is mounted, leave no mount and no file in Dir,
	// because the kubelet removes it by rmdir, and not depend on any service.
	// After an error it is called again. Nil: the kubelet unmounts.
	Unmount func(context.Context, *Call) error

	// UnmountDevice takes away what MountDevice did.
	//
	// Gets: Dir, the device mount path, nothing else. Called: by the kubelet
	// with a capability of Attach, when no pod of the node uses the volume any
	// more, but only if Dir is a mount point (detacher.go:53-94, OG:869).
	// Must: as Unmount. Nil: the kubelet unmounts.
	UnmountDevice func(context.Context, *Call) error

	// Detach takes the volume away from the node NodeName.
	//
	// Gets: VolumeName, the PersistentVolume's, and NodeName; no options, and
	// the PersistentVolume may be gone. Called: by KCM, when no pod wants it,
	// and 6 minutes after the node became unhealthy even if the volume is still
	// in use there (detacher.go:39-50, OG:399). Must: succeed if it is not
	// attached. Nil: success.
	Detach func(context.Context, *Call) error

	// ExpandVolume makes the volume NewSize bytes large, not its filesystem.
	//
	// Gets: Options without secrets, Dir without a meaning, NewSize, OldSize.
	// Called: not in this version (expander.go:27-44;
	// pkg/controller/volume/expand/expand_controller.go:118 gives no prober).
	// Nil: success without anything done (expander-defaults.go:36-39), so
	// rather have a function.
	ExpandVolume func(context.Context, *Call) error

	// ExpandFS makes the volume and its filesystem NewSize bytes large. The
	// PersistentVolume already has the new capacity, but ExpandVolume was not
	// called before.
	//
	// Gets: Options without secrets; Dir, the pod's volume directory, not the
	// device mount path; Device, "" without a capability of Attach; NewSize,
	// OldSize. Called: by the kubelet on every node with a pod of the volume,
	// after Mount or while the pod runs (expander.go:46-71, OG:2122,
	// pkg/volume/util/operationexecutor/node_expander.go:161). Must: succeed
	// only when the size is there. Nil: the kubelet runs resize2fs or
	// xfs_growfs on Device (expander-defaults.go:43-59). Without a Device it takes the
	// volume for unformatted, and reports success with nothing grown: with Attach false
	// have a function, if only one that returns an error.
	ExpandFS func(context.Context, *Call) error

	// Default does the callouts that have no function above, but init, and getvolumename,
	// which is best left to the kubelet.
	Default func(context.Context, *Call) (DriverStatus, error)

	// Plan returns the steps that a callout would take now, for --dry-run. It must only
	// read. Its error is the one with which the callout would fail before its first step.
	Plan func(context.Context, *Call) ([]string, error)

	// Timeout gives the deadline of a callout. Where it is nil or returns
	// nothing above 0, [DefaultTimeout] holds.
	Timeout func(Command) time.Duration

	// instead does the callouts that the driver does, with --dry-run.
	instead calloutFunc
}

// DefaultTimeout returns the deadline of a callout for which the driver sets none: 10 s
// for init and getvolumename; 9 minutes for waitforattach, for which the kubelet waits 10
// (pkg/kubelet/volumemanager/volume_manager.go:90); 110 s for the others, for which the
// kubelet itself would wait for ever, and which it repeats every two minutes at most.
func DefaultTimeout(c Command) time.Duration {
	switch c {
	case CommandInit, CommandGetVolumeName:
		return 10 * time.Second
	case CommandWaitForAttach:
		return 9 * time.Minute
	default:
		return 110 * time.Second
	}
}

func (d *Driver) timeout(c Command) time.Duration {
	if d.Timeout != nil {
		if t := d.Timeout(c); t > 0 {
			return t
		}
	}
	return DefaultTimeout(c)
}

// A calloutFunc is any function of a Driver behind one signature.
type calloutFunc func(context.Context, *Call) (DriverStatus, error)

// callout returns what does c, or nil.
func (d *Driver) callout(c Command) calloutFunc {
	f := d.function(c)
	if f == nil && c.Known() && c != CommandInit && c != CommandGetVolumeName {
		f = d.Default
	}
	if f != nil && d.instead != nil {
		return d.instead
	}
	return f
}

// function returns the driver's own function for c, or nil.
func (d *Driver) function(c Command) calloutFunc {
	switch c {
	case CommandGetVolumeName:
		return answering(d.GetVolumeName, func(s *DriverStatus, name string) { s.VolumeName = name })
	case CommandAttach:
		return answering(d.Attach, func(s *DriverStatus, device string) { s.Device = device })
	case CommandIsAttached:
		return answering(d.IsAttached, func(s *DriverStatus, attached bool) { s.Attached = &attached })
	case CommandWaitForAttach:
		return answering(d.WaitForAttach, func(s *DriverStatus, device string) { s.Device = device })
	case CommandMountDevice:
		return plain(d.MountDevice)
	case CommandMount:
		return plain(d.Mount)
	case CommandUnmount:
		return plain(d.Unmount)
	case CommandUnmountDevice:
		return plain(d.UnmountDevice)
	case CommandDetach:
		return plain(d.Detach)
	case CommandExpandVolume:
		return plain(d.ExpandVolume)
	case CommandExpandFS:
		return plain(d.ExpandFS)
	}
	return nil
}

func answering[T any](f func(context.Context, *Call) (T, error), set func(*DriverStatus, T)) calloutFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, call *Call) (DriverStatus, error) {
		value, err := f(ctx, call)
		status := DriverStatus{Status: StatusSuccess}
		set(&status, value)
		return status, err
	}
}

func plain(f func(context.Context, *Call) error) calloutFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, call *Call) (DriverStatus, error) {
		return DriverStatus{Status: StatusSuccess}, f(ctx, call)
	}
}
