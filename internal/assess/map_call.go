package assess

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// FromCall makes a volume of a callout that has options. driver is what is
// known of it, or empty.
func FromCall(driver string, args []string) (*FlexVolume, error) {
	args, masked := unmask(args)
	call, err := flex.ParseCall(args)
	if err != nil {
		return nil, err
	}
	switch call.Command {
	case flex.CommandInit, flex.CommandUnmount, flex.CommandUnmountDevice, flex.CommandDetach:
		return nil, fmt.Errorf("%s has no options, so nothing tells which volume it is about: give the mount or attach of that volume", call.Command)
	}
	v := &FlexVolume{From: "the call of " + string(call.Command), FlexDriver: driver, Options: call.Options, NewSize: call.NewSize, OldSize: call.OldSize}
	for _, key := range masked {
		v.masked(key)
	}
	if place, err := kubeletdir.Parse(call.Dir); err == nil {
		v.Options.VolumeName = cmp.Or(v.Options.VolumeName, place.Volume)
		v.FlexDriver = cmp.Or(v.FlexDriver, place.Driver)
		if place.PodUID != "" {
			v.Dir = call.Dir
			v.Options.PodUID = cmp.Or(v.Options.PodUID, place.PodUID)
		}
	} else if call.Command == flex.CommandMount {
		v.Dir = call.Dir
	}
	v.Options.VolumeName = cmp.Or(v.Options.VolumeName, unknownVolume)
	if v.Options.PodUID == "" {
		v.Options.PodUID, v.Options.PodName, v.Options.PodNamespace = unknownPodUID, unknownPod, unknownNamespace
	}
	if call.Command != flex.CommandMount {
		v.unknownSecret = true
		v.note(string(call.Command) + " does not tell the pod, its fsGroup and the Secret, as mount does")
	}
	attaches := []flex.Command{flex.CommandAttach, flex.CommandIsAttached, flex.CommandWaitForAttach, flex.CommandMountDevice}
	v.ControlPlaneAttaches = slices.Contains(attaches, call.Command)
	return v, nil
}
