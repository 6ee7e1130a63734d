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

// parse returns the members of the JSON object in data.
func parse(data []byte) ([]strict.Member, error) {
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
	if kind, got := textOf(text); kind != strict.Object {
		return nil, fmt.Errorf("want a JSON object but got %s", kind.Describe(got))
	}
	return strict.Members(text), nil
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

// backendOf returns the backend in a file; the defaults depend on it.
func backendOf(members []strict.Member) Backend {
	for _, m := range members {
		if m.Key == "backend" && strict.KindOf(m.Value) == strict.String {
			return Backend(strict.Unquote(m.Value))
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

func (d *decoder) object(path string, members []strict.Member, fields []field) {
	for _, m := range members {
		at := strict.Join(path, m.Key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == m.Key })
		if i < 0 {
			d.Unknown(at, keys(fields))
		} else {
			d.member(at, m.Value, fields[i].to)
		}
	}
}

func keys(fields []field) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.key
	}
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
	kind, text := textOf(value)
	switch to := to.(type) {
	case []field:
		if d.Is(path, strict.Object, kind, text) {
			d.object(path, strict.Members(value), to)
		}
	case *map[flex.Command]Duration:
		if d.Is(path, strict.Object, kind, text) {
			d.timeouts(path, strict.Members(value), to)
		}
	case *[]string:
		if d.Is(path, strict.Array, kind, text) {
			d.texts(path, strict.Elements(value), to)
		}
	case *bool:
		if d.Is(path, strict.Bool, kind, text) {
			*to = text == "true"
		}
	case *int:
		if d.Is(path, strict.Number, kind, text) {
			d.count(path, text, to)
		}
	case *string:
		if d.Is(path, strict.String, kind, text) {
			*to = text
		}
	case encoding.TextUnmarshaler:
		if d.Is(path, strict.String, kind, text) {
			if err := to.UnmarshalText([]byte(text)); err != nil {
				d.Fault(path, "%v", err)
			}
		}
	}
}

// textOf returns the kind of a value and its text, which of a string has no quotes.
func textOf(value string) (strict.Kind, string) {
	kind := strict.KindOf(value)
	if kind == strict.String {
		value = strict.Unquote(value)
	}
	return kind, value
}

func (d *decoder) timeouts(path string, members []strict.Member, to *map[flex.Command]Duration) {
	known := timeoutCommands()
	for _, m := range members {
		at := strict.Join(path, m.Key)
		if !slices.Contains(known, m.Key) {
			d.Unknown(at, known)
			continue
		}
		var timeout Duration
		d.member(at, m.Value, &timeout)
		if *to == nil {
			*to = map[flex.Command]Duration{}
		}
		(*to)[flex.Command(m.Key)] = timeout
	}
}

func (d *decoder) texts(path string, items []string, to *[]string) {
	for i, item := range items {
		*to = append(*to, "")
		d.value(strict.Index(path, i), item, &(*to)[i])
	}
}

// count takes a number from 1 on: 0 is what a file lacks that has none.
func (d *decoder) count(path, number string, to *int) {
	var err error
	if *to, err = strconv.Atoi(number); err != nil || *to < 1 {
		d.Fault(path, "want a whole number from 1 on but got %s", strict.Number.Describe(number))
	}
}
