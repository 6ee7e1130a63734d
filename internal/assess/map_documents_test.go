package assess_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadForms: the same volumes come out of each form that kubectl and people write.
func TestReadForms(t *testing.T) {
	const (
		pv1    = `{"kind": "PersistentVolume", "metadata": {"name": "pv1"}, "spec": {"flexVolume": {"driver": "a/b"}}}`
		pv2    = `{"kind": "PersistentVolume", "metadata": {"name": "pv2"}, "spec": {"flexVolume": {"driver": "a/b"}}}`
		driver = `{"kind": "CSIDriver", "metadata": {"name": "x"}}`
		items  = "- kind: PersistentVolume\n  metadata:\n    annotations:\n      note: |\n        - no item\n\n        ---\n    name: pv1\n  spec:\n    flexVolume:\n      driver: a/b\n- " + pv2 + "\n# a comment\n- " + driver + "\n"
	)
	forms := map[string]string{
		"YAML list":          "apiVersion: v1\nitems:\n" + items + "kind: List\nmetadata: {}\n",
		"YAML list, CRLF":    strings.ReplaceAll("apiVersion: v1\nitems:\n"+items+"kind: List\n", "\n", "\r\n"),
		"YAML list, no end":  strings.TrimSuffix("kind: List\nitems:\n"+items, "\n"),
		"indented YAML list": "kind: List\nitems:\n  - " + pv1 + "\n  - " + pv2 + "\n  - " + driver + "\n",
		"flow YAML list":     "{kind: List, items: [" + pv1 + ", " + pv2 + ", " + driver + "]}",
		"YAML documents":     "---\n" + pv1 + "\n---   # the second\n" + pv2 + "\n--- " + driver + "\n---",
		"YAML lists":         "items:\n- " + pv1 + "\nkind: List\n---\nitems:\n- " + pv2 + "\n- " + driver + "\nkind: List\n",
		"JSON list":          ` {"apiVersion": "v1", "items": [` + pv1 + "," + pv2 + "," + driver + `], "kind": "List"}` + "\n",
		"JSON objects":       pv1 + "\n" + pv2 + driver,
		"JSON and a list":    pv1 + `{"kind": "List", "items": [` + pv2 + "," + driver + `]}`,
		"an array":           "- " + pv1 + "\n- " + pv2 + "\n- " + driver + "\n",
	}
	for name, text := range forms {
		t.Run(name, func(t *testing.T) {
			in, err := readVolumes(text)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range in.Volumes {
				got = append(got, v.Options.VolumeName)
			}
			if diff := cmp.Diff([]string{"pv1", "pv2"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, ok := in.CSIDrivers["x"]; !ok {
				t.Error("the CSIDriver was not found")
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	tests := []struct{ input, want string }{
		{"kind: List\nitems:\n- a: 1\n- a: b: c\n", "line 4: not YAML: mapping values"},
		{"items:\n- a: 1\n  b: 2\nkind: List\nx: y: z\n", "line 5: not YAML: mapping values"},
		{"a: 1\n---\nb: 1\nb: &x 2\n", "line 4: anchors"},
		{"items:\n- kind: x\n- text\n", "line 3: want a manifest, but got a string"},
		{`{"items": [{"kind": "x"},`, "not JSON: unexpected"},
		{`{"items": 5}`, "not JSON: items: want an array"},
		{`{"kind": "x"} text`, "not JSON: invalid character"},
		{`{"kind": "x"} []`, "not JSON: want { but got ["},
	}
	for _, tt := range tests {
		_, err := readVolumes(tt.input)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", tt.input, err, tt.want)
		}
	}
}

// TestReadLong: input is not cut at any length. It was, at 16 MiB, and nothing said so.
func TestReadLong(t *testing.T) {
	const n = 9000
	r, w := io.Pipe()
	go func() {
		fmt.Fprint(w, `{"kind": "List", "items": [`)
		for i := range n {
			fmt.Fprintf(w, `{"kind": "PersistentVolume", "metadata": {"name": "pv%d", "annotations": {"long": %q}}, "spec": {"flexVolume": {"driver": "a/b"}}},`, i, strings.Repeat("x", 2000))
		}
		fmt.Fprint(w, `{}]}`)
		w.Close()
	}()
	in, err := readFrom(r)
	if err != nil || len(in.Volumes) != n {
		t.Fatalf("%d volumes, %v", len(in.Volumes), err)
	}
}

// TestReadNull: a field that is null is not there.
func TestReadNull(t *testing.T) {
	in, err := readVolumes(`{"kind": "PersistentVolume", "metadata": {"name": "pv1", "namespace": null}, "spec": {"flexVolume": {"driver": "a/b", "fsType": null}, "claimRef": {"namespace": null, "name": "c"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if v := in.Volumes[0]; v.Options.FSType != "" || v.Claim != "default/c" {
		t.Errorf("got fsType %q and claim %q", v.Options.FSType, v.Claim)
	}
}
