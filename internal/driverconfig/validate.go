package driverconfig

import (
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
	// The kubelet's timeout of waitforattach is 10 minutes, and it crashes if the
	// driver still runs 10 s later (k8s.io/utils/exec, Stop), so the driver ends well
	// before.
	maxWaitForAttach = 9*time.Minute + 30*time.Second
)

// Validate returns nil or an [*InvalidError] with all faults. It looks at the
// configuration only, not at the node.
func (c *Configuration) Validate() error {
	if faults := append(versionFaults(c), c.faults()...); len(faults) > 0 {
		return &InvalidError{Faults: faults}
	}
	return nil
}

func versionFaults(c *Configuration) []Fault {
	var v validator
	v.Want("apiVersion", c.APIVersion, APIVersion, "flexdriver")
	v.Want("kind", c.Kind, Kind, "flexdriver")
	return v.Faults
}

func (c *Configuration) faults() []Fault {
	var v validator
	v.driver(c.Driver)
	v.backend(c)
	v.fsGroup(c)
	v.AbsPath("kubeletDir", c.KubeletDir)
	v.allowed(&c.Allowed)
	v.timeouts(c.Timeouts)
	if c.Log.File != LogJournal {
		v.AbsPath("log.file", c.Log.File)
	}
	v.OneOf("log.level", string(c.Log.Level), "", string(logDebug), string(logInfo), string(logWarn), string(logError))
	return v.Faults
}

// validator has the checks that only this format has.
type validator struct{ strict.Report }

func (v *validator) driver(name DriverName) {
	if name == (DriverName{}) {
		v.Fault("driver", "missing (want \"vendor/name\")")
	} else if _, err := ParseDriverName(name.String()); err != nil {
		v.Fault("driver", "%v", err)
	}
}

// backend refuses fields of other backends.
func (v *validator) backend(c *Configuration) {
	v.OneOf("backend", string(c.Backend), string(BackendLocal), string(BackendCSI))
	only := func(other Backend, field string, set bool) {
		if set {
			v.Fault(field, "means nothing to backend %q, only to %q (leave it out)", c.Backend, other)
		}
	}
	switch c.Backend {
	case BackendLocal:
		only(BackendCSI, "socket", c.Socket != "")
		only(BackendCSI, "stateDir", c.StateDir != "")
		only(BackendCSI, "controllerSocket", c.ControllerSocket != "")
	case BackendCSI:
		only(BackendLocal, "fsGroupPolicy", c.FSGroupPolicy != "")
		only(BackendLocal, "directoryRoots", len(c.DirectoryRoots) > 0)
		only(BackendLocal, "imageRoots", len(c.ImageRoots) > 0)
		only(BackendLocal, "deviceRoots", len(c.DeviceRoots) > 0)
		only(BackendLocal, "sourceTypes", len(c.SourceTypes) > 0)
		only(BackendLocal, "maxSize", c.MaxSize != "")
		only(BackendLocal, "maxSizePerNamespace", c.MaxSizePerNamespace != "")
		only(BackendLocal, "maxImagesPerNamespace", c.MaxImagesPerNamespace != 0)
		v.place("socket", c.Socket)
		v.place("stateDir", c.StateDir)
		if len(c.Socket) > maxSocket {
			v.Fault("socket", "is longer than %d bytes, which the kernel does not allow", maxSocket)
		}
		v.controllerSocket(c.ControllerSocket)
	}
}

// controllerSocket requires a dot-file: the kubelet's prober sees other files.
func (v *validator) controllerSocket(socket string) {
	if socket == "" || path.IsAbs(socket) {
		v.AbsPath("controllerSocket", socket)
		return
	}
	name := strings.TrimPrefix(socket, "../")
	if len(name) < 2 || name[0] != '.' || name == ".." || strings.Contains(name, "/") || strings.ContainsFunc(name, unicode.IsControl) {
		v.Fault("controllerSocket", "%q is neither absolute nor the name of a dot-file next to the driver, such as \".controller.sock\", or in the plugin directory, such as \"../.controller.sock\"", strict.Clip(socket))
	}
}

// maxSocket is the longest path in a sockaddr_un (unix(7)).
const maxSocket = 107

// place requires a path.
func (v *validator) place(at, path string) {
	if path == "" {
		v.Fault(at, "empty (want an absolute path)")
	}
	v.AbsPath(at, path)
}

// fsGroup requires that policy and capability agree: the kubelet acts on the capability.
func (v *validator) fsGroup(c *Configuration) {
	if c.Backend == BackendCSI {
		if c.Capabilities.FSGroup {
			v.Fault("capabilities.fsGroup", "true makes the kubelet change what flex2csi has set already, as its configuration says for this driver (leave it out)")
		}
		return
	}
	v.OneOf("fsGroupPolicy", string(c.FSGroupPolicy), string(FSGroupDriver), string(FSGroupKubelet), string(FSGroupNone))
	want := c.FSGroupPolicy == FSGroupKubelet
	if c.Capabilities.FSGroup != want {
		v.Fault("capabilities.fsGroup", "%t contradicts fsGroupPolicy %q, for which it is %t (leave it out and set fsGroupPolicy only)",
			c.Capabilities.FSGroup, strict.Clip(string(c.FSGroupPolicy)), want)
	}
}

// timeoutCommands are the callouts with a deadline that can be set. init is not
// among them: it does nothing that could take time.
func timeoutCommands() (names []string) {
	for _, command := range flex.Commands() {
		if command != flex.CommandInit {
			names = append(names, string(command))
		}
	}
	return names
}

func (v *validator) timeouts(timeouts map[flex.Command]Duration) {
	if len(timeouts) == 0 {
		return
	}
	known := timeoutCommands()
	for _, command := range slices.Sorted(maps.Keys(timeouts)) {
		at := strict.Join("timeouts", string(command))
		longest := maxTimeout
		if command == flex.CommandWaitForAttach {
			longest = maxWaitForAttach
		}
		switch d := time.Duration(timeouts[command]); {
		case !slices.Contains(known, string(command)):
			v.Fault(at, "no callout with a deadline has this name")
		case d < minTimeout:
			v.Fault(at, "%v is too short (at least %v)", d, minTimeout)
		case d > longest:
			v.Fault(at, "%v is too long (at most %v)", d, longest)
		}
	}
}
