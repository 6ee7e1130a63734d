package bridgeconfig

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// A Check finds faults that this package cannot find, such as those in expressions.
type Check func(*Configuration) []strict.Fault

// A Loader loads configurations. The zero value does not check owner and mode of the file.
type Loader struct {
	// Others says what users other than root may do with the file.
	Others hostfile.Others
	// Timeout is the default timeout of RPCs; zero: [DefaultTimeout].
	Timeout time.Duration
}

// Load reads, decodes and validates the configuration at path.
func (l Loader) Load(path string, checks ...Check) (*Configuration, error) {
	data, err := hostfile.ReadTrusted(path, l.Others, MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	c, err := l.Decode(data, checks...)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Read reads the input of Decode, up to its limit.
func Read(r io.Reader) ([]byte, error) { return hostfile.ReadLimited(r, MaxSize) }

// Decode returns the configuration in data, with defaults for missing fields.
// Its error is a [*strict.InvalidError] with all faults, from the first line of
// the file to the last.
func (l Loader) Decode(data []byte, checks ...Check) (*Configuration, error) {
	root, err := yamltext.Parse(data)
	if err != nil {
		return nil, err
	}
	if kind := yamltext.KindOf(root); kind != strict.Object {
		return nil, &strict.InvalidError{Faults: []strict.Fault{{Message: "want a YAML object but got " + kind.Describe(root.Value)}}}
	}

	c, d := &Configuration{}, &yamltext.Decoder{}
	d.Decode(root, c)
	d.Add(versionFaults(c))
	if d.Focus("apiVersion", "kind") {
		return nil, d.Err() // in another version everything may have another meaning
	}
	if open := openFaults(root); len(open) > 0 {
		return nil, &strict.InvalidError{Faults: open}
	}
	for i := range c.Drivers {
		c.Drivers[i].Timeout = cmp.Or(l.Timeout, DefaultTimeout)
	}
	d.Add(c.faults())
	for _, check := range checks {
		d.Add(check(c))
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// SetDefaults makes d what it is before the file is read.
func (d *Driver) SetDefaults() { *d = DefaultDriver() }

// RemovedFields returns those of earlier versions, with what to do about them.
func (d *Driver) RemovedFields() map[string]string {
	return map[string]string{
		"directPublish": "the kubelet could see an unfinished mount, and containers write to the node's disk; delete the field: volumes are published at a target path, and bound when they are complete",
		"sizeLimits":    "delete the field: strings of 1 KiB and maps of 64 KiB are allowed",
		"stagingRoot":   "delete the field, and mount <kubelet dir>/plugins/kubernetes.io/csi into the CSI driver's pods; volumes that are staged elsewhere are unstaged there",
		"timeouts":      "delete the field, and set --timeout of flex2csi serve",
	}
}

// stages gives each source its name in the file.
func (s *Secrets) stages() map[string]**SecretSource {
	return map[string]**SecretSource{
		"controllerPublish": &s.ControllerPublish,
		"nodeStage":         &s.NodeStage,
		"nodePublish":       &s.NodePublish,
		"nodeExpand":        &s.NodeExpand,
		"controllerExpand":  &s.ControllerExpand,
	}
}

// Encode returns the configuration as the file's content, with every default
// in it. The configuration must be valid.
func (c *Configuration) Encode() ([]byte, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	text, err := yamltext.Encode(c)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return text, nil
}
