package driverconfig

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Decode returns the configuration in data, with defaults for missing fields.
// Its error is an [*InvalidError] with all faults.
func Decode(data []byte) (*Configuration, error) {
	members, err := parse(data)
	if err != nil {
		return nil, &InvalidError{Faults: []Fault{{Message: err.Error()}}}
	}
	c := Default(DriverName{}, backendOf(members))
	c.APIVersion, c.Kind = "", "" // these two have no default
	d := &decoder{}
	d.object("", members, c.fields())
	d.Add(versionFaults(c))
	if d.Focus("apiVersion", "kind") {
		return nil, d.Err() // in another version everything may have another meaning
	}
	if !slices.Contains(d.seen, "capabilities.fsGroup") {
		c.Capabilities.FSGroup = c.FSGroupPolicy == FSGroupKubelet
	}
	d.Add(c.faults())
	if err := d.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// A member of a JSON object; its value is as it is written.
type member struct{ key, value string }

// parse returns the members of the JSON object in data.
func parse(data []byte) ([]member, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8 text")
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return nil, errors.New("empty")
	}
	if err := strict.CheckJSON(data); err != nil {
		return nil, syntaxError(data, err)
	}
	if kind := strict.KindOf(text); kind != strict.Object {
		return nil, fmt.Errorf("want a JSON object but got %s", kind.Describe(text))
	}
	return membersOf(text), nil
}

func syntaxError(data []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON: %w (%s)", err, position(data, syntax.Offset))
	}
	return fmt.Errorf("not JSON: %w", err)
}

// position returns line and column of an offset.
func position(data []byte, offset int64) string {
	before := data[:min(max(offset-1, 0), int64(len(data)))]
	line := bytes.Count(before, []byte("\n"))
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return fmt.Sprintf("line %d, column %d", line+1, column+1)
}

func membersOf(object string) []member {
	elements := strict.Elements(object)
	members := make([]member, len(elements)/2)
	for i := range members {
		members[i] = member{strict.Unquote(elements[2*i]), elements[2*i+1]}
	}
	return members
}

// backendOf returns the backend in a file; the defaults depend on it.
func backendOf(members []member) Backend {
	for _, m := range members {
		if m.key == "backend" && strict.KindOf(m.value) == strict.String {
			return Backend(strict.Unquote(m.value))
		}
	}
	return BackendLocal
}

// A field is a key of an object, and where its value goes: a pointer, or the fields of an
// object.
type field struct {
	key string
	to  any
}

// fields has all keys of the format.
func (c *Configuration) fields() []field {
	return []field{
		{"apiVersion", &c.APIVersion},
		{"kind", &c.Kind},
		{"driver", &c.Driver},
		{"backend", (*string)(&c.Backend)},
		{"capabilities", []field{
			{"attach", &c.Capabilities.Attach},
			{"selinuxRelabel", &c.Capabilities.SELinuxRelabel},
			{"fsGroup", &c.Capabilities.FSGroup},
			{"supportsMetrics", &c.Capabilities.SupportsMetrics},
			{"requiresFSResize", &c.Capabilities.RequiresFSResize},
		}},
		{"socket", &c.Socket},
		{"stateDir", &c.StateDir},
		{"controllerSocket", &c.ControllerSocket},
		{"fsGroupPolicy", (*string)(&c.FSGroupPolicy)},
		{"kubeletDir", &c.KubeletDir},
		{"directoryRoots", &c.DirectoryRoots},
		{"imageRoots", &c.ImageRoots},
		{"deviceRoots", &c.DeviceRoots},
		{"sourceTypes", &c.SourceTypes},
		{"maxSize", &c.MaxSize},
		{"maxSizePerNamespace", &c.MaxSizePerNamespace},
		{"maxImagesPerNamespace", &c.MaxImagesPerNamespace},
		{"timeouts", &c.Timeouts},
		{"log", []field{
			{"file", &c.Log.File},
			{"level", (*string)(&c.Log.Level)},
		}},
	}
}

// A decoder puts values into variables, and collects the faults.
type decoder struct {
	strict.Report
	seen []string // paths of the fields in the file
}

func (d *decoder) object(path string, members []member, fields []field) {
	for _, m := range members {
		at := strict.Join(path, m.key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == m.key })
		if i < 0 {
			d.unknown(at, keys(fields))
		} else {
			d.member(at, m.value, fields[i].to)
		}
	}
}

func (d *decoder) unknown(path string, known []string) {
	d.Fault(path, "no such field (there are: %s)", strings.Join(known, ", "))
}

func keys(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.key
	}
	slices.Sort(all)
	return all
}

func (d *decoder) member(path, value string, to any) {
	if slices.Contains(d.seen, path) {
		d.Fault(path, "twice in the file")
		return
	}
	d.seen = append(d.seen, path)
	d.value(path, value, to)
}

func (d *decoder) value(path, value string, to any) {
	switch to := to.(type) {
	case []field:
		if d.is(strict.Object, path, value) {
			d.object(path, membersOf(value), to)
		}
	case *map[flex.Command]Duration:
		if d.is(strict.Object, path, value) {
			d.timeouts(path, membersOf(value), to)
		}
	case *[]string:
		if d.is(strict.Array, path, value) {
			d.texts(path, strict.Elements(value), to)
		}
	case *bool:
		if d.is(strict.Bool, path, value) {
			*to = value == "true"
		}
	case *int:
		if d.is(strict.Number, path, value) {
			d.count(path, value, to)
		}
	case *string:
		if d.is(strict.String, path, value) {
			*to = strict.Unquote(value)
		}
	case encoding.TextUnmarshaler:
		if d.is(strict.String, path, value) {
			if err := to.UnmarshalText([]byte(strict.Unquote(value))); err != nil {
				d.Fault(path, "%v", err)
			}
		}
	}
}

func (d *decoder) is(want strict.Kind, path, value string) bool {
	kind := strict.KindOf(value)
	if kind == strict.String {
		value = strict.Unquote(value)
	}
	return d.Is(path, want, kind, value)
}

func (d *decoder) timeouts(path string, members []member, to *map[flex.Command]Duration) {
	known := timeoutCommands()
	for _, m := range members {
		at := strict.Join(path, m.key)
		if !slices.Contains(known, m.key) {
			d.unknown(at, known)
			continue
		}
		var timeout Duration
		d.member(at, m.value, &timeout)
		if *to == nil {
			*to = map[flex.Command]Duration{}
		}
		(*to)[flex.Command(m.key)] = timeout
	}
}

func (d *decoder) texts(path string, items []string, to *[]string) {
	for i, item := range items {
		*to = append(*to, "")
		d.value(strict.Index(path, i), item, &(*to)[i])
	}
}

// count takes a number from 1 on: 0 is what a file lacks that has none.
func (d *decoder) count(path, value string, to *int) {
	var err error
	if *to, err = strconv.Atoi(value); err != nil || *to < 1 {
		d.Fault(path, "want a whole number from 1 on but got %s", strict.Number.Describe(value))
	}
}
