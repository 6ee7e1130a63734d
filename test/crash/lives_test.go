package crash

import (
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A call is one callout.
type call struct {
	command  flex.Command
	pod      string
	readOnly bool
}

func (c call) String() string {
	s := string(c.command)
	if c.pod != "" {
		s += " " + c.pod
	}
	if c.readOnly {
		s += " ro"
	}
	return s
}

// undoneBy returns the callout that takes down what the call sets up.
func (c call) undoneBy() flex.Command {
	switch c.command {
	case flex.CommandAttach:
		return flex.CommandDetach
	case flex.CommandMountDevice:
		return flex.CommandUnmountDevice
	case flex.CommandMount:
		return flex.CommandUnmount
	}
	return ""
}

// undoes reports whether the call takes something down.
func (c call) undoes() bool {
	switch c.command {
	case flex.CommandUnmount, flex.CommandUnmountDevice, flex.CommandDetach:
		return true
	}
	return false
}

// plain is the life of a volume with attach:false and one pod.
func plain() []call {
	return []call{
		{command: flex.CommandMount, pod: "pod-a"},
		{command: flex.CommandUnmount, pod: "pod-a"},
	}
}

// shared is one with two pods, of which the second only reads.
func shared() []call {
	return []call{
		{command: flex.CommandMount, pod: "pod-a"},
		{command: flex.CommandMount, pod: "pod-b", readOnly: true},
		{command: flex.CommandUnmount, pod: "pod-a"},
		{command: flex.CommandUnmount, pod: "pod-b"},
	}
}

// attached is the life of a volume with attach:true.
func attached() []call {
	return []call{
		{command: flex.CommandAttach},
		{command: flex.CommandWaitForAttach},
		{command: flex.CommandMountDevice},
		{command: flex.CommandMount, pod: "pod-a"},
		{command: flex.CommandUnmount, pod: "pod-a"},
		{command: flex.CommandUnmountDevice},
		{command: flex.CommandDetach},
	}
}

// grown is one that is expanded while it is mounted.
func grown() []call {
	return []call{
		{command: flex.CommandMount, pod: "pod-a"},
		{command: flex.CommandExpandFS, pod: "pod-a"},
		{command: flex.CommandUnmount, pod: "pod-a"},
	}
}

// grownBefore is one that is expanded before it is mounted.
func grownBefore() []call {
	return []call{
		{command: flex.CommandExpandFS, pod: "pod-a"},
		{command: flex.CommandMount, pod: "pod-a"},
		{command: flex.CommandUnmount, pod: "pod-a"},
	}
}
