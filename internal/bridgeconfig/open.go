package bridgeconfig

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// An OpenPlace is a placeholder in the value of a preset: <fill in NAME (what it
// is)>. A configuration with a placeholder is not valid.
type OpenPlace struct {
	Name string
	What string // what has to be written there
	Path string // of the value it is in
	Line int
}

// OpenMark begins a placeholder; its name follows.
const OpenMark = "<fill in "

// OpenPlaces returns those in data, in the order of the file.
func OpenPlaces(data []byte) ([]OpenPlace, error) {
	root, err := yamltext.Parse(data)
	if err != nil {
		return nil, err
	}
	return openPlaces("", root, nil), nil
}

// Fill replaces an open place by a value, wherever it is in data. It keeps
// everything else as it is, comments and layout included.
func Fill(data, name, value string) string {
	var b strings.Builder
	for {
		before, p, rest, ok := cutOpen(data)
		if !ok {
			return b.String() + data
		}
		b.WriteString(before)
		if p.Name == name {
			b.WriteString(value)
		} else {
			b.WriteString(data[len(before) : len(data)-len(rest)])
		}
		data = rest
	}
}

func openPlaces(path string, n *yaml.Node, found []OpenPlace) []OpenPlace {
	for key, value := range yamltext.Members(n) {
		found = openPlaces(strict.Join(path, key), value, found)
	}
	for i, item := range yamltext.Items(n) {
		found = openPlaces(strict.Index(path, i), item, found)
	}
	for text := n.Value; ; {
		_, p, rest, ok := cutOpen(text)
		if !ok {
			break
		}
		p.Path, p.Line = path, n.Line
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
		text = rest
	}
	slices.SortStableFunc(found, func(a, b OpenPlace) int { return cmp.Compare(a.Line, b.Line) })
	return found
}

// cutOpen finds the first open place in text, and what is before and after it.
func cutOpen(text string) (before string, p OpenPlace, rest string, ok bool) {
	before, in, ok := strings.Cut(text, OpenMark)
	if !ok {
		return text, OpenPlace{}, "", false
	}
	in, rest, _ = strings.Cut(in, ">")
	name, what, _ := strings.Cut(in, "(")
	p.Name = strings.TrimSpace(name)
	p.What = strings.Join(strings.Fields(strings.TrimSuffix(what, ")")), " ")
	return before, p, rest, true
}

// openFaults are those of a file that has open places. They stand alone: what
// else may be wrong changes when they are filled in.
func openFaults(root *yaml.Node) []strict.Fault {
	var r strict.Report
	for _, p := range openPlaces("", root, nil) {
		what, mark := "", p.Name
		if p.What != "" {
			what, mark = " ("+p.What+")", p.Name+" (…)"
		}
		r.Fault(p.Path, "%s is to be filled in%s: write it in place of %q", cmp.Or(p.Name, "something"), what, OpenMark+mark+">")
		r.Faults[len(r.Faults)-1].Line = p.Line
	}
	return r.Faults
}
