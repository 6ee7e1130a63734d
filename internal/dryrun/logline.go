package dryrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// ParseLine finds a callout in a line: one of the kubelet's log, which has
// "executable: …, args: [mount /dir {…}]" in it (pkg/volume/flexvolume/
// driver-call.go, Run, Kubernetes v1.37.1), or a command as a person types it,
// with or without the driver's path. The driver is empty if nothing tells it.
func ParseLine(line string) (driver string, args []string, err error) {
	line = strings.TrimSpace(line)
	if strings.Contains(line, "\n") {
		return "", nil, errors.New("more than one line")
	}
	if _, rest, ok := strings.Cut(line, "executable: "); ok {
		path, _, _ := strings.Cut(rest, ",")
		driver = driverOf(path)
	}
	words := line
	if _, rest, ok := strings.Cut(line, "args: ["); ok {
		words = rest
	}
	args, err = splitWords(words)
	if err != nil {
		return "", nil, err
	}
	start := slices.IndexFunc(args, func(word string) bool { return flex.Command(word).Known() })
	if start < 0 {
		return "", nil, errors.New("there is no callout in it, such as mount or attach")
	}
	if start > 0 && driver == "" {
		driver = driverOf(args[start-1])
	}
	return driver, args[start:], nil
}

func driverOf(path string) string {
	name, err := driverconfig.DriverOfExecutable(path)
	if err != nil {
		return ""
	}
	return name.String()
}

// splitWords splits at blanks. A JSON object is one word, with all blanks in it. Single
// quotes are as in a shell. A closing bracket without an opening one ends the line.
func splitWords(s string) (words []string, err error) {
	for {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "" || s[0] == ']':
			return words, nil
		case s[0] == '{':
			var raw json.RawMessage
			d := json.NewDecoder(strings.NewReader(s))
			if d.Decode(&raw) != nil {
				return nil, errors.New("the JSON options in it are not complete")
			}
			words, s = append(words, string(raw)), s[d.InputOffset():]
		case s[0] == '\'':
			word, rest, ok := strings.Cut(s[1:], "'")
			if !ok {
				return nil, errors.New("a single quote in it is not closed")
			}
			words, s = append(words, word), rest
		default:
			end := strings.IndexAny(s, " \t]")
			if end < 0 {
				end = len(s)
			}
			words, s = append(words, s[:end]), s[end:]
		}
	}
}

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
		v.Options.VolumeName = orDefault(v.Options.VolumeName, place.Volume)
		v.FlexDriver = orDefault(v.FlexDriver, place.Driver)
		if place.PodUID != "" {
			v.Dir = call.Dir
			v.Options.PodUID = orDefault(v.Options.PodUID, place.PodUID)
		}
	} else if call.Command == flex.CommandMount {
		v.Dir = call.Dir
	}
	v.Options.VolumeName = orDefault(v.Options.VolumeName, unknownVolume)
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
