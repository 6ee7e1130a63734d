package bridgeconfig

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/strict/strictyaml"
	"github.com/flex2csi/flex2csi/internal/trust"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// A Check finds faults that this package cannot find, such as those in expressions.
type Check func(*Configuration) []strict.Fault

// A Loader loads configurations. The zero value does not check owner and mode of the file.
type Loader struct {
	// Others says what users other than root may do with the file.
	Others trust.Others
	// Timeout is the default timeout of RPCs; zero: [DefaultTimeout].
	Timeout time.Duration
}

// Load reads, decodes and validates the configuration at path.
func (l Loader) Load(path string, checks ...Check) (*Configuration, error) {
	data, err := trust.ReadFile(path, l.Others, MaxSize)
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
func Read(r io.Reader) ([]byte, error) { return trust.Read(r, MaxSize) }

// Decode returns the configuration in data, with defaults for missing fields.
// Its error is a [*strict.InvalidError] with all faults, from the first line of
// the file to the last.
func (l Loader) Decode(data []byte, checks ...Check) (*Configuration, error) {
	root, err := strictyaml.Parse(data)
	if err != nil {
		fault := strict.Fault{Message: err.Error()}
		if e, ok := errors.AsType[*strictyaml.SyntaxError](err); ok {
			fault = strict.Fault{Line: e.Line, Message: e.Message}
		}
		return nil, &strict.InvalidError{Faults: []strict.Fault{fault}}
	}
	if root.Kind != strict.Object {
		return nil, &strict.InvalidError{Faults: []strict.Fault{{Message: "want a YAML object but got " + root.Describe()}}}
	}

	c, d := &Configuration{}, &strict.Decoder{}
	// In another version everything may have another meaning: report no further
	// faults.
	d.Object("", root.Only("apiVersion", "kind"), versionFields(d, c))
	d.Add(versionFaults(c))
	if err := located(d); err != nil {
		return nil, err
	}
	d.Add(openFaults(root))
	if err := located(d); err != nil {
		return nil, err
	}
	d.Object("", root, l.fields(d, c))
	d.Add(c.faults())
	for _, check := range checks {
		d.Add(check(c))
	}
	if err := located(d); err != nil {
		return nil, err
	}
	return c, nil
}

// located sorts the faults by line.
func located(d *strict.Decoder) error {
	d.Locate(d.Faults)
	slices.SortStableFunc(d.Faults, func(a, b strict.Fault) int { return a.Line - b.Line })
	return d.Err()
}

func versionFields(d *strict.Decoder, c *Configuration) strict.Fields {
	return strict.Fields{
		"apiVersion": strict.Text(d, &c.APIVersion),
		"kind":       strict.Text(d, &c.Kind),
	}
}

// fields has all keys of the format.
func (l Loader) fields(d *strict.Decoder, c *Configuration) strict.Fields {
	all := versionFields(d, c)
	all["drivers"] = d.Each(func(path string, n strict.Node) {
		driver := DefaultDriver()
		if l.Timeout > 0 {
			driver.Timeout = l.Timeout
		}
		fields := driverFields(d, &driver)
		for name, advice := range removedFields() {
			fields[name] = func(path string, _ strict.Node) { d.Fault(path, "was removed: %s", advice) }
		}
		d.Nested(fields)(path, n)
		c.Drivers = append(c.Drivers, driver)
	})
	return all
}

// expression takes a string. YAML makes something else of many expressions.
func expression(d *strict.Decoder, dst *string) strict.Take {
	return func(path string, n strict.Node) {
		if n.Kind != strict.String {
			d.Fault(path, "want an expression but got %s: put single quotes around it", n.Describe())
			return
		}
		*dst = n.Text
	}
}

func driverFields(d *strict.Decoder, driver *Driver) strict.Fields {
	return strict.Fields{
		"flexDriver":         strict.Text(d, &driver.FlexDriver),
		"csiDriver":          strict.Text(d, &driver.CSIDriver),
		"when":               expression(d, &driver.When),
		"endpoint":           strict.Text(d, &driver.Endpoint),
		"controllerEndpoint": strict.Text(d, &driver.ControllerEndpoint),
		"attach":             strict.Text(d, &driver.Attach),
		"volume": d.Nested(strict.Fields{
			"handle":     expression(d, &driver.Volume.Handle),
			"context":    expression(d, &driver.Volume.Context),
			"mountFlags": expression(d, &driver.Volume.MountFlags),
			"fsType":     expression(d, &driver.Volume.FSType),
			"accessMode": expression(d, &driver.Volume.AccessMode),
		}),
		"secrets":           d.Nested(secretFields(d, &driver.Secrets)),
		"classParameters":   expression(d, &driver.ClassParameters),
		"podInfo":           maybe(d, &driver.PodInfo),
		"requiresRepublish": maybe(d, &driver.RequiresRepublish),
		"repairInUse":       d.Bool(&driver.RepairInUse),

		"serviceAccountTokens": d.Bool(&driver.ServiceAccountTokens),
		"fsGroup":              strict.Text(d, &driver.FSGroup),
		"inline":               d.Bool(&driver.Inline),
		"pvNamePattern":        strict.Text(d, &driver.PVNamePattern),
	}
}

// removedFields are those of earlier versions, with what to do about them.
func removedFields() map[string]string {
	return map[string]string{
		"directPublish": "the kubelet could see an unfinished mount, and containers write to the node's disk; delete the field: volumes are published at a target path, and bound when they are complete",
		"sizeLimits":    "delete the field: strings of 1 KiB and maps of 64 KiB are allowed",
		"stagingRoot":   "delete the field, and mount <kubelet dir>/plugins/kubernetes.io/csi into the CSI driver's pods; volumes that are staged elsewhere are unstaged there",
		"timeouts":      "delete the field, and set --timeout of flex2csi serve",
	}
}

// maybe takes a boolean for which no default stands.
func maybe(d *strict.Decoder, dst **bool) strict.Take {
	return func(path string, n strict.Node) {
		var b bool
		d.Bool(&b)(path, n)
		*dst = &b
	}
}

func secretFields(d *strict.Decoder, s *Secrets) strict.Fields {
	fields := strict.Fields{}
	for stage, dst := range s.stages() {
		fields[stage] = func(path string, n strict.Node) {
			source := &SecretSource{}
			d.Nested(strict.Fields{
				"fromFlexSecret": d.TextMap(&source.FromFlexSecret),
				"optional":       d.Texts(&source.Optional),
				"file":           strict.Text(d, &source.File),
				"key":            strict.Text(d, &source.Key),
				"secretRef": func(path string, n strict.Node) {
					source.SecretRef = &SecretRef{}
					d.Nested(strict.Fields{
						"name":      strict.Text(d, &source.SecretRef.Name),
						"namespace": strict.Text(d, &source.SecretRef.Namespace),
					})(path, n)
				},
			})(path, n)
			*dst = source
		}
	}
	return fields
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
