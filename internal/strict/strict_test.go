package strict_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/strict"
)

func TestFaultString(t *testing.T) {
	for want, f := range map[string]strict.Fault{
		"empty":              {Message: "empty"},
		"line 3: no YAML":    {Line: 3, Message: "no YAML"},
		"a.b: no":            {Path: "a.b", Message: "no"},
		"a[1].b (line 2): x": {Path: "a[1].b", Line: 2, Message: "x"},
	} {
		if got := f.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLocate: a fault about something that is missing has the line of what it
// is missing from.
func TestLocate(t *testing.T) {
	text := func(s string, line int) strict.Node { return strict.Node{Kind: strict.String, Text: s, Line: line} }
	inner := strict.Node{Kind: strict.Object, Line: 2, Members: []strict.Member{
		{Key: "wait", Value: text("5s", 3)},
		{Key: "a.b", Value: text("x", 4)},
		{Key: "wait", Value: text("6s", 5)},
	}}
	root := strict.Node{Kind: strict.Object, Members: []strict.Member{
		{Key: "list", Value: strict.Node{Kind: strict.Array, Line: 1, Items: []strict.Node{inner, text("y", 6)}}},
	}}
	d := &strict.Decoder{}
	var waits []time.Duration
	fields := strict.Fields{"wait": d.Duration(func(w time.Duration) { waits = append(waits, w) })}
	d.Object("", root, strict.Fields{"list": d.Each(d.Nested(fields))})
	d.Fault("list[0].missing", "missing")
	d.Fault("elsewhere", "no line")
	d.Locate(d.Faults)

	var got []string
	for _, f := range d.Faults {
		got = append(got, f.String())
	}
	want := []string{
		`list[0]."a.b" (line 4): no such field (there are: wait)`,
		"list[0].wait (line 5): twice in the file",
		`list[1] (line 6): want an object but got the string "y"`,
		"list[0].missing (line 2): missing",
		"elsewhere: no line",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{5 * time.Second}, waits); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
