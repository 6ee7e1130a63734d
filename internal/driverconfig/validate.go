package driverconfig

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	minTimeout = time.Second
	maxTimeout = 10 * time.Minute
	// The kubelet gives waitforattach 10 minutes and crashes if the driver is
	// still there 10 s later (k8s.io/utils/exec, Stop), so the driver ends well
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
	v.want("apiVersion", c.APIVersion, APIVersion)
	v.want("kind", c.Kind, Kind)
	return v.faults
}

func (c *Configuration) faults() []Fault {
	var v validator
	v.driver(c.Driver)
	v.backend(c.Backend)
	v.fsGroup(c)
	v.path("kubeletDir", c.KubeletDir)
	v.roots("directoryRoots", c.DirectoryRoots)
	if slices.Contains(c.DirectoryRoots, "/") {
		v.fault("directoryRoots", "\"/\" would hand every directory of the node to whoever may create a PersistentVolume: name the directories")
	}
	v.roots("imageRoots", c.ImageRoots)
	v.roots("deviceRoots", c.DeviceRoots)
	v.timeouts(c.Timeouts)
	if c.Log.File != LogJournal {
		v.path("log.file", c.Log.File)
	}
	v.oneOf("log.level", string(c.Log.Level), "", string(LogDebug), string(LogInfo), string(LogWarn), string(LogError))
	return v.faults
}

type validator struct{ faults []Fault }

func (v *validator) fault(path, format string, args ...any) {
	v.faults = append(v.faults, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) want(path, got, want string) {
	switch got {
	case want:
	case "":
		v.fault(path, "missing (want %q)", want)
	default:
		v.fault(path, "%q is not known to this flexdriver (want %q)", clip(got), want)
	}
}

func (v *validator) oneOf(path, got string, allowed ...string) {
	if slices.Contains(allowed, got) {
		return
	}
	var quoted []string
	for _, a := range allowed {
		if a != "" {
			quoted = append(quoted, fmt.Sprintf("%q", a))
		}
	}
	v.fault(path, "%q is none of %s", clip(got), strings.Join(quoted, ", "))
}

func (v *validator) driver(name DriverName) {
	if name == (DriverName{}) {
		v.fault("driver", "missing (want \"vendor/name\")")
	} else if _, err := ParseDriverName(name.String()); err != nil {
		v.fault("driver", "%v", err)
	}
}

func (v *validator) backend(b Backend) {
	if b == "csi" {
		v.fault("backend", "\"csi\" needs a later version of flexdriver (this one has %q)", BackendLocal)
		return
	}
	v.oneOf("backend", string(b), string(BackendLocal))
}

// fsGroup holds the two fields together: init's capability is what makes the
// kubelet act, so policy and capability must say the same.
func (v *validator) fsGroup(c *Configuration) {
	v.oneOf("fsGroupPolicy", string(c.FSGroupPolicy), string(FSGroupDriver), string(FSGroupKubelet), string(FSGroupNone))
	want := c.FSGroupPolicy == FSGroupKubelet
	if c.Capabilities.FSGroup != want {
		v.fault("capabilities.fsGroup", "%t contradicts fsGroupPolicy %q, for which it is %t (leave it out and set fsGroupPolicy only)",
			c.Capabilities.FSGroup, clip(string(c.FSGroupPolicy)), want)
	}
}

// path accepts an empty one: the field was not set.
func (v *validator) path(at, path string) {
	if path == "" {
		return
	}
	switch {
	case strings.ContainsFunc(path, unicode.IsControl):
		v.fault(at, "%q has a control character in it", clip(path))
	case !filepath.IsAbs(path):
		v.fault(at, "%q is not absolute", clip(path))
	case filepath.Clean(path) != path:
		v.fault(at, "%q is not clean (want %q)", clip(path), clip(filepath.Clean(path)))
	}
}

func (v *validator) roots(at string, roots []string) {
	for i, root := range roots {
		if root == "" {
			v.fault(index(at, i), "empty (want an absolute path)")
		}
		v.path(index(at, i), root)
	}
}

// timeoutCommands are the callouts whose deadline can be set. init is not among
// them: it does nothing that could take time.
func timeoutCommands() []flex.Command {
	return slices.DeleteFunc(flex.Commands(), func(c flex.Command) bool { return c == flex.CommandInit })
}

func (v *validator) timeouts(timeouts map[flex.Command]Duration) {
	if len(timeouts) == 0 {
		return
	}
	known := timeoutCommands()
	for _, command := range slices.Sorted(maps.Keys(timeouts)) {
		at := join("timeouts", string(command))
		longest := maxTimeout
		if command == flex.CommandWaitForAttach {
			longest = maxWaitForAttach
		}
		switch d := time.Duration(timeouts[command]); {
		case !slices.Contains(known, command):
			v.fault(at, "no callout with a deadline has this name")
		case d < minTimeout:
			v.fault(at, "%v is too short (at least %v)", d, minTimeout)
		case d > longest:
			v.fault(at, "%v is too long (at most %v)", d, longest)
		}
	}
}
