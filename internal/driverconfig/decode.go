package driverconfig

import (
	"strconv"
	"time"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Decode returns the configuration in data, with defaults for missing fields.
// Its error is an [*InvalidError] with all faults.
func Decode(data []byte) (*Configuration, error) {
	root, err := parse(data)
	if err != nil {
		return nil, &InvalidError{Faults: []Fault{{Message: err.Error()}}}
	}
	if root.Kind != strict.Object {
		return nil, &InvalidError{Faults: []Fault{{Message: "want a JSON object but got " + root.Describe()}}}
	}

	c := Default(DriverName{}, backendOf(root))
	c.APIVersion, c.Kind = "", "" // these two have no default
	d := &decoder{}
	fsGroupSaid := false
	all := fields(d, c, &fsGroupSaid)
	// In another version everything may have another meaning: report no further
	// faults.
	d.Object("", root.Only("apiVersion", "kind"), all)
	d.Add(versionFaults(c))
	if err := d.Err(); err != nil {
		return nil, err
	}

	d.Object("", root, all)
	if !fsGroupSaid {
		c.Capabilities.FSGroup = c.FSGroupPolicy == FSGroupKubelet
	}
	d.Add(c.faults())
	if err := d.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// backendOf returns the backend in a file; the defaults depend on it.
func backendOf(root strict.Node) Backend {
	for _, m := range root.Members {
		if m.Key == "backend" && m.Value.Kind == strict.String {
			return Backend(m.Value.Text)
		}
	}
	return BackendLocal
}

// fields has all keys of the format.
func fields(d *decoder, c *Configuration, fsGroupSaid *bool) strict.Fields {
	return strict.Fields{
		"apiVersion": strict.Text(&d.Decoder, &c.APIVersion),
		"kind":       strict.Text(&d.Decoder, &c.Kind),
		"driver":     d.driver(&c.Driver),
		"backend":    strict.Text(&d.Decoder, &c.Backend),
		"capabilities": d.Nested(strict.Fields{
			"attach":         d.Bool(&c.Capabilities.Attach),
			"selinuxRelabel": d.Bool(&c.Capabilities.SELinuxRelabel),
			"fsGroup": func(path string, n strict.Node) {
				*fsGroupSaid = true
				d.Bool(&c.Capabilities.FSGroup)(path, n)
			},
			"supportsMetrics":  d.Bool(&c.Capabilities.SupportsMetrics),
			"requiresFSResize": d.Bool(&c.Capabilities.RequiresFSResize),
		}),
		"socket":                strict.Text(&d.Decoder, &c.Socket),
		"stateDir":              strict.Text(&d.Decoder, &c.StateDir),
		"controllerSocket":      strict.Text(&d.Decoder, &c.ControllerSocket),
		"fsGroupPolicy":         strict.Text(&d.Decoder, &c.FSGroupPolicy),
		"kubeletDir":            strict.Text(&d.Decoder, &c.KubeletDir),
		"directoryRoots":        d.Texts(&c.DirectoryRoots),
		"imageRoots":            d.Texts(&c.ImageRoots),
		"deviceRoots":           d.Texts(&c.DeviceRoots),
		"sourceTypes":           d.Texts(&c.SourceTypes),
		"maxSize":               strict.Text(&d.Decoder, &c.MaxSize),
		"maxSizePerNamespace":   strict.Text(&d.Decoder, &c.MaxSizePerNamespace),
		"maxImagesPerNamespace": d.count(&c.MaxImagesPerNamespace),
		"timeouts":              d.timeouts(&c.Timeouts),
		"log": d.Nested(strict.Fields{
			"file":  strict.Text(&d.Decoder, &c.Log.File),
			"level": strict.Text(&d.Decoder, &c.Log.Level),
		}),
	}
}

// decoder has the types that only this format has.
type decoder struct{ strict.Decoder }

// count takes a number from 1 on: 0 is what a file lacks that has none.
func (d *decoder) count(dst *int) strict.Take {
	return func(path string, n strict.Node) {
		if !d.Is(strict.Number, path, n) {
			return
		}
		var err error
		if *dst, err = strconv.Atoi(n.Text); err != nil || *dst < 1 {
			d.Fault(path, "want a whole number from 1 on but got %s", n.Describe())
		}
	}
}

func (d *decoder) driver(dst *DriverName) strict.Take {
	return func(path string, n strict.Node) {
		if !d.Is(strict.String, path, n) {
			return
		}
		name, err := ParseDriverName(n.Text)
		if err != nil {
			d.Fault(path, "%v", err)
		}
		*dst = name
	}
}

func (d *decoder) timeouts(dst *map[flex.Command]Duration) strict.Take {
	return func(path string, n strict.Node) { // the table is made only if it is needed
		durations := map[flex.Command]Duration{}
		set := strict.Fields{}
		for _, command := range timeoutCommands() {
			set[string(command)] = d.Duration(func(duration time.Duration) { durations[command] = Duration(duration) })
		}
		d.Nested(set)(path, n)
		if len(durations) > 0 {
			*dst = durations
		}
	}
}
