// Package driverconfig is the configuration of one installed driver: the
// dot-file .flexdriver.json next to its executable.
//
// It is there because the plugin directory is the only place that is present
// wherever the executable runs, be it a kubelet in a container or
// kube-controller-manager's image without a shell, and it is a dot-file because
// the kubelet's prober ignores those (pkg/volume/flexvolume/probe.go,
// handleWatchEvent): any other file written there makes it run init once more.
//
// Decoding is strict and reports all faults at once, each with its path in the
// file. Nothing here is a reason for init to fail: if [Load] fails the caller
// answers init with [SafeCapabilities] and everything that needs the
// configuration with the error.
//
// Every callout of the driver loads this package, so it imports little more
// than encoding/json.
package driverconfig

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	// APIVersion is the only version of the format so far.
	APIVersion = "flex2csi.io/v1alpha1"
	// Kind names the format.
	Kind = "FlexDriverConfiguration"

	// FileName is the configuration's name, next to the executable.
	FileName = ".flexdriver.json"
	// FileMode is 0644: the file holds no secrets, and it must be readable where
	// the driver does not run as root, as in a kube-controller-manager with an
	// ordinary user, or by a person who calls the driver with --dry-run.
	FileMode = 0o644
	// MaxSize bounds the file: init must answer at once.
	MaxSize = 64 << 10
)

// Configuration is the content of the file. [Default] returns a valid one.
type Configuration struct {
	// APIVersion and Kind are the constants of the same names.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Driver is the name in PersistentVolumes (spec.flexVolume.driver), in the
	// form vendor/name. It must be that of the directory the file lies in.
	Driver DriverName `json:"driver"`

	// Backend says who does the work.
	Backend Backend `json:"backend"`

	// Capabilities are init's answer. Its FSGroup follows FSGroupPolicy.
	Capabilities flex.Capabilities `json:"capabilities"`

	// Socket and StateDir are the daemon's flags of these names: its socket, and the
	// directory with its records and the pending unmounts. Only with [BackendCSI].
	Socket   string `json:"socket,omitempty"`
	StateDir string `json:"stateDir,omitempty"`

	// ControllerSocket is the socket of flex2csi controller; see
	// [Configuration.ControllerSocketOf]. Empty: there is none. Only with [BackendCSI].
	ControllerSocket string `json:"controllerSocket,omitempty"`

	// FSGroupPolicy says who gives a volume to the pod's fsGroup. Only with
	// [BackendLocal]: for CSI drivers the daemon's configuration says it.
	FSGroupPolicy FSGroupPolicy `json:"fsGroupPolicy,omitempty"`

	// KubeletDir is the kubelet's --root-dir. Empty: derived from the paths the
	// kubelet passes, which is right unless symlinks are involved.
	KubeletDir string `json:"kubeletDir,omitempty"`

	// Allowed restricts volumes. Only with [BackendLocal].
	Allowed

	// Timeouts replace the default deadlines of single callouts.
	Timeouts map[flex.Command]Duration `json:"timeouts,omitempty"`

	// Log is the driver's log. The kubelet reads standard output and standard error as
	// one answer, so there is no log by default.
	Log Log `json:"log,omitzero"`
}

// Allowed restricts volumes: the author of a pod may write their options. An empty field
// allows none.
type Allowed struct {
	// DirectoryRoots, ImageRoots and DeviceRoots are the directories below which
	// volumes with the options path, image and device may lie.
	DirectoryRoots []string `json:"directoryRoots,omitempty"`
	ImageRoots     []string `json:"imageRoots,omitempty"`
	DeviceRoots    []string `json:"deviceRoots,omitempty"`

	// SourceTypes are the types of filesystems that volumes with the option
	// source may have, each by its full name.
	SourceTypes []string `json:"sourceTypes,omitempty"`

	// MaxSize bounds the size of an image or a memory volume, as a quantity.
	MaxSize string `json:"maxSize,omitempty"`

	// MaxSizePerNamespace bounds the size of all images of a namespace below an image root
	// together, as a quantity; empty: MaxSize. MaxImagesPerNamespace bounds their number.
	MaxSizePerNamespace   string `json:"maxSizePerNamespace,omitempty"`
	MaxImagesPerNamespace int    `json:"maxImagesPerNamespace,omitempty"`
}

// The defaults of MaxSize and MaxImagesPerNamespace.
const (
	DefaultMaxSize               = "100Gi"
	DefaultMaxImagesPerNamespace = 100
)

// MaxBytes is MaxSize as a number.
func (a Allowed) MaxBytes() int64 {
	n, _ := ParseQuantity(a.MaxSize) // else 0, which allows nothing
	return n
}

// MaxBytesPerNamespace is MaxSizePerNamespace as a number.
func (a Allowed) MaxBytesPerNamespace() int64 {
	n, _ := ParseQuantity(cmp.Or(a.MaxSizePerNamespace, a.MaxSize))
	return n
}

// String returns one line about the allowed volumes.
func (a Allowed) String() string {
	var parts []string
	for _, p := range []struct {
		what, where string
		names       []string
	}{
		{"images", "below", a.ImageRoots},
		{"devices", "below", a.DeviceRoots},
		{"directories", "below", a.DirectoryRoots},
		{"sources", "of type", a.SourceTypes},
	} {
		text := "no " + p.what
		if len(p.names) > 0 {
			text = p.what + " " + p.where + " " + strings.Join(p.names, " and ")
		}
		parts = append(parts, text)
	}
	return fmt.Sprintf("%s; memory; sizes up to %s", strings.Join(parts, "; "), a.MaxSize)
}

// Backend says who does the work of the callouts.
type Backend string

const (
	// BackendLocal mounts disk images, devices, network file systems and
	// directories itself.
	BackendLocal Backend = "local"
	// BackendCSI hands the callouts to the daemon flex2csi on this node, which
	// has a CSI driver do the work.
	BackendCSI Backend = "csi"
)

// FSGroupPolicy says who gives a volume to the group of the pod's
// securityContext.fsGroup.
type FSGroupPolicy string

const (
	// FSGroupDriver is the default: the driver does it before the volume becomes
	// visible, and skips a volume if its root has the group already. The kubelet
	// would do it after the mount and ignore errors
	// (pkg/volume/flexvolume/mounter.go, SetUpAt).
	FSGroupDriver FSGroupPolicy = "driver"
	// FSGroupKubelet leaves it to the kubelet, which then heeds the pod's
	// fsGroupChangePolicy: the capability fsGroup becomes true.
	FSGroupKubelet FSGroupPolicy = "kubelet"
	// FSGroupNone leaves owners and modes alone: for file systems that have none.
	FSGroupNone FSGroupPolicy = "none"
)

// LogJournal as the file of a [Log] is the journal of systemd. It equals volumelog.Journal;
// that package is heavier.
const LogJournal = "journal"

// Log is where and how much the driver logs. The zero value is silence.
type Log struct {
	// File gets a line per event; it may be [LogJournal]. It must not be in the plugin
	// directory, where each write makes the kubelet run init (kubernetes/kubernetes#58352).
	File string `json:"file,omitempty"`
	// Level is the least severe level that is written. Empty: info.
	Level LogLevel `json:"level,omitempty"`
}

// LogLevel is a level of log/slog, in lower case. This package does not import
// log/slog, which would cost each callout start-up time.
type LogLevel string

// The levels.
const (
	logDebug LogLevel = "debug"
	logInfo  LogLevel = "info"
	logWarn  LogLevel = "warn"
	logError LogLevel = "error"
)

// Duration is a time.Duration with a JSON string: "90s", "2m".
type Duration time.Duration

// String returns the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText makes the duration text in JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText takes text such as "90s".
func (d *Duration) UnmarshalText(text []byte) error {
	duration, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration (want one such as \"90s\" or \"2m\")", strict.Clip(string(text)))
	}
	*d = Duration(duration)
	return nil
}

// DefaultSocket is where the daemon listens by default, as in package wire, which laptops
// do not link.
const DefaultSocket = "/run/flex2csi/flex2csi.sock"

// Default returns the default configuration for a backend. Decoding begins with it.
func Default(driver DriverName, backend Backend) *Configuration {
	c := &Configuration{
		APIVersion:   APIVersion,
		Kind:         Kind,
		Driver:       driver,
		Backend:      backend,
		Capabilities: SafeCapabilities(),
	}
	if backend == BackendCSI {
		c.Socket, c.StateDir = DefaultSocket, statedir.DefaultStateDir
	} else {
		c.FSGroupPolicy, c.MaxSize, c.MaxImagesPerNamespace = FSGroupDriver, DefaultMaxSize, DefaultMaxImagesPerNamespace
	}
	return c
}

// SafeCapabilities returns what init answers when there is no configuration or
// a broken one: those of [Default]. Each does least harm if the kubelet remembers
// it after the file was corrected: without attach no pod waits for
// kube-controller-manager, without fsGroup no owners are changed by mistake.
func SafeCapabilities() flex.Capabilities {
	return flex.Capabilities{
		Attach:           false,
		SELinuxRelabel:   true,
		FSGroup:          false,
		SupportsMetrics:  true,
		RequiresFSResize: true,
	}
}

// Timeout returns the configured deadline of a callout, or 0 for the default.
// It fits flex.Driver's field of this name.
func (c *Configuration) Timeout(command flex.Command) time.Duration {
	return time.Duration(c.Timeouts[command])
}

// ControllerSocketOf returns the path of the controller's socket for the driver
// with its executable in dir. It may be configured as a dot-file in that
// directory, or in the one above: only these surely exist where
// kube-controller-manager runs the driver, perhaps at another path than on the
// node, and the prober ignores dot-files in both (Kubernetes v1.37.1,
// pkg/volume/flexvolume/probe.go, probeAll and handleWatchEvent).
func (c *Configuration) ControllerSocketOf(dir string) string {
	if c.ControllerSocket == "" || path.IsAbs(c.ControllerSocket) {
		return c.ControllerSocket
	}
	return path.Join(dir, c.ControllerSocket)
}

// Fault is one thing wrong in a configuration.
type Fault = strict.Fault

// InvalidError is what is wrong with a configuration: at least one fault.
type InvalidError = strict.InvalidError
