package driverconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Decode returns the configuration in data, with defaults where data is silent.
// Its error is an [*InvalidError] with all faults.
func Decode(data []byte) (*Configuration, error) {
	root, err := parse(data)
	if err != nil {
		return nil, &InvalidError{Faults: []Fault{{Message: err.Error()}}}
	}
	if root.kind != kindObject {
		return nil, &InvalidError{Faults: []Fault{{Message: "want a JSON object but got " + root.describe()}}}
	}

	c := Default(DriverName{})
	c.APIVersion, c.Kind = "", "" // these two have no default
	d := &decoder{}
	// In another version of the format everything may have another meaning, so
	// that further faults would mislead.
	d.object("", onlyMembers(root, "apiVersion", "kind"), versionFields(d, c))
	d.add(versionFaults(c))
	if len(d.faults) > 0 {
		return nil, &InvalidError{Faults: d.faults}
	}

	fsGroupSaid := false
	d.object("", root, fields(d, c, &fsGroupSaid))
	if !fsGroupSaid {
		c.Capabilities.FSGroup = c.FSGroupPolicy == FSGroupKubelet
	}
	d.add(c.faults())
	if len(d.faults) > 0 {
		return nil, &InvalidError{Faults: d.faults}
	}
	return c, nil
}

// fieldSet is what an object may have in it: for each key what takes its value.
type fieldSet map[string]func(path string, n node)

func versionFields(d *decoder, c *Configuration) fieldSet {
	return fieldSet{
		"apiVersion": text(d, &c.APIVersion),
		"kind":       text(d, &c.Kind),
	}
}

// fields is the format: every key there is.
func fields(d *decoder, c *Configuration, fsGroupSaid *bool) fieldSet {
	all := versionFields(d, c)
	all["driver"] = d.driver(&c.Driver)
	all["backend"] = text(d, &c.Backend)
	all["capabilities"] = d.nested(fieldSet{
		"attach":         d.boolean(&c.Capabilities.Attach),
		"selinuxRelabel": d.boolean(&c.Capabilities.SELinuxRelabel),
		"fsGroup": func(path string, n node) {
			*fsGroupSaid = true
			d.boolean(&c.Capabilities.FSGroup)(path, n)
		},
		"supportsMetrics":  d.boolean(&c.Capabilities.SupportsMetrics),
		"requiresFSResize": d.boolean(&c.Capabilities.RequiresFSResize),
	})
	all["fsGroupPolicy"] = text(d, &c.FSGroupPolicy)
	all["kubeletDir"] = text(d, &c.KubeletDir)
	all["directoryRoots"] = d.texts(&c.DirectoryRoots)
	all["imageRoots"] = d.texts(&c.ImageRoots)
	all["deviceRoots"] = d.texts(&c.DeviceRoots)
	all["timeouts"] = d.timeouts(&c.Timeouts)
	all["log"] = d.nested(fieldSet{
		"file":  text(d, &c.Log.File),
		"level": text(d, &c.Log.Level),
	})
	return all
}

func onlyMembers(n node, keys ...string) node {
	n.members = slices.DeleteFunc(slices.Clone(n.members), func(m member) bool {
		return !slices.Contains(keys, m.key)
	})
	return n
}

// decoder collects faults.
type decoder struct{ faults []Fault }

func (d *decoder) fault(path, format string, args ...any) {
	d.faults = append(d.faults, Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// add takes faults over, but not a second one of the same place: what could not
// be decoded is empty and would be called missing.
func (d *decoder) add(faults []Fault) {
	known := make(map[string]bool, len(d.faults))
	for _, f := range d.faults {
		known[f.Path] = true
	}
	for _, f := range faults {
		if !known[f.Path] {
			d.faults = append(d.faults, f)
		}
	}
}

// is reports whether n is of the kind wanted, and adds a fault if not.
func (d *decoder) is(want kind, path string, n node) bool {
	if n.kind != want {
		d.fault(path, "want %s but got %s", want, n.describe())
	}
	return n.kind == want
}

func (d *decoder) object(path string, n node, set fieldSet) {
	seen := make(map[string]bool, len(n.members))
	for _, m := range n.members {
		at := join(path, m.key)
		take, known := set[m.key]
		switch {
		case !known:
			d.fault(at, "no such field (there are: %s)", keys(set))
		case seen[m.key]:
			d.fault(at, "twice in the file")
		default:
			take(at, m.value)
		}
		seen[m.key] = true
	}
}

func (d *decoder) nested(set fieldSet) func(string, node) {
	return func(path string, n node) {
		if d.is(kindObject, path, n) {
			d.object(path, n, set)
		}
	}
}

func (d *decoder) boolean(dst *bool) func(string, node) {
	return func(path string, n node) {
		if d.is(kindBool, path, n) {
			*dst = n.truth
		}
	}
}

// text is a function because methods have no type parameters.
func text[T ~string](d *decoder, dst *T) func(string, node) {
	return func(path string, n node) {
		if d.is(kindString, path, n) {
			*dst = T(n.text)
		}
	}
}

func (d *decoder) texts(dst *[]string) func(string, node) {
	return func(path string, n node) {
		if !d.is(kindArray, path, n) {
			return
		}
		for i, item := range n.items {
			if at := index(path, i); d.is(kindString, at, item) {
				*dst = append(*dst, item.text)
			}
		}
	}
}

func (d *decoder) driver(dst *DriverName) func(string, node) {
	return func(path string, n node) {
		if !d.is(kindString, path, n) {
			return
		}
		name, err := ParseDriverName(n.text)
		if err != nil {
			d.fault(path, "%v", err)
		}
		*dst = name
	}
}

func (d *decoder) timeouts(dst *map[flex.Command]Duration) func(string, node) {
	return func(path string, n node) { // the table is made only if it is needed
		durations := map[flex.Command]Duration{}
		set := fieldSet{}
		for _, command := range timeoutCommands() {
			set[string(command)] = d.timeout(durations, command)
		}
		d.nested(set)(path, n)
		if len(durations) > 0 {
			*dst = durations
		}
	}
}

func (d *decoder) timeout(dst map[flex.Command]Duration, command flex.Command) func(string, node) {
	return func(path string, n node) {
		if !d.is(kindString, path, n) {
			return
		}
		duration, err := time.ParseDuration(n.text)
		if err != nil {
			d.fault(path, "%q is no duration (want one such as \"90s\" or \"2m\")", clip(n.text))
			return
		}
		dst[command] = Duration(duration)
	}
}

// join quotes keys that no field has, so that a fault stays one line of text.
func join(path, key string) string {
	key = clip(key)
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return !alphanumeric(r) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func keys(set fieldSet) string {
	var all []string
	for key := range set {
		all = append(all, key)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
