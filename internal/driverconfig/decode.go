package driverconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
	fields := c.fields()
	// In another version everything may have another meaning: report no further
	// faults.
	d.object("", only(members, "apiVersion", "kind"), fields)
	d.Add(versionFaults(c))
	if err := d.Err(); err != nil {
		return nil, err
	}

	d.seen = nil
	d.object("", members, fields)
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
	if text[0] != '{' {
		return nil, fmt.Errorf("want a JSON object but got %s", describe(text))
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

func only(members []member, keys ...string) []member {
	return slices.DeleteFunc(slices.Clone(members), func(m member) bool { return !slices.Contains(keys, m.key) })
}

// backendOf returns the backend in a file; the defaults depend on it.
func backendOf(members []member) Backend {
	for _, m := range members {
		if m.key == "backend" && m.value[0] == '"' {
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
		switch {
		case i < 0:
			d.Fault(at, "no such field (there are: %s)", keys(fields))
		case slices.Contains(d.seen, at):
			d.Fault(at, "twice in the file")
		default:
			d.seen = append(d.seen, at)
			d.value(at, m.value, fields[i].to)
		}
	}
}

func keys(fields []field) string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = f.key
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (d *decoder) value(path, value string, to any) {
	switch to := to.(type) {
	case []field:
		if d.begins(path, value, "{", "an object") {
			d.object(path, membersOf(value), to)
		}
	case *[]string:
		if d.begins(path, value, "[", "an array") {
			d.texts(path, strict.Elements(value), to)
		}
	case *bool:
		if d.begins(path, value, "tf", "a boolean") {
			*to = value == "true"
		}
	case *string:
		if d.begins(path, value, `"`, "a string") {
			*to = strict.Unquote(value)
		}
	case *int:
		if d.begins(path, value, "-0123456789", "a number") {
			d.count(path, value, to)
		}
	case *DriverName:
		d.driver(path, value, to)
	case *Duration:
		d.duration(path, value, to)
	case *map[flex.Command]Duration:
		d.timeouts(path, value, to)
	}
}

// begins reports whether a value is of the kind that its first byte tells, and adds a fault
// if not.
func (d *decoder) begins(path, value, first, want string) bool {
	if strings.IndexByte(first, value[0]) >= 0 {
		return true
	}
	d.Fault(path, "want %s but got %s", want, describe(value))
	return false
}

// describe says what a value is.
func describe(value string) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return fmt.Sprintf("the string %q", strict.Clip(strict.Unquote(value)))
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "the number " + strict.Clip(value)
}

func (d *decoder) texts(path string, items []string, to *[]string) {
	for i, item := range items {
		var text string
		d.value(strict.Index(path, i), item, &text)
		*to = append(*to, text)
	}
}

// count takes a number from 1 on: 0 is what a file lacks that has none.
func (d *decoder) count(path, value string, to *int) {
	var err error
	if *to, err = strconv.Atoi(value); err != nil || *to < 1 {
		d.Fault(path, "want a whole number from 1 on but got %s", describe(value))
	}
}

func (d *decoder) driver(path, value string, to *DriverName) {
	if !d.begins(path, value, `"`, "a string") {
		return
	}
	var err error
	if *to, err = ParseDriverName(strict.Unquote(value)); err != nil {
		d.Fault(path, "%v", err)
	}
}

func (d *decoder) duration(path, value string, to *Duration) {
	if !d.begins(path, value, `"`, "a string") {
		return
	}
	text := strict.Unquote(value)
	duration, err := time.ParseDuration(text)
	if err != nil {
		d.Fault(path, "%q is no duration (want one such as \"90s\" or \"2m\")", strict.Clip(text))
	}
	*to = Duration(duration)
}

func (d *decoder) timeouts(path, value string, to *map[flex.Command]Duration) {
	commands := timeoutCommands()
	durations := make([]Duration, len(commands))
	fields := make([]field, len(commands))
	for i, command := range commands {
		fields[i] = field{string(command), &durations[i]}
	}
	d.value(path, value, fields)
	for i, command := range commands {
		if !slices.Contains(d.seen, strict.Join(path, string(command))) {
			continue
		}
		if *to == nil {
			*to = map[flex.Command]Duration{}
		}
		(*to)[command] = durations[i]
	}
}
