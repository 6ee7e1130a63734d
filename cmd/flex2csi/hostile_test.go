package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

// TestHostileOutput: names of objects reached the administrator's terminal as they are (F4 of
// the review: U+009B and U+202E passed). All output goes through one filter; JSON and YAML
// keep the data.
func TestHostileOutput(t *testing.T) {
	const name = "pv\u009b31m\u202egpj"
	pv := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: \"pv\\x9b31m\\u202Egpj\"}\nspec: {claimRef: {namespace: \"n\\u202E\", name: c}, flexVolume: {driver: example.com/disk, options: {volumeID: \"\\u202E\"}}}\n"
	for _, args := range [][]string{
		{"assess", "-f", "-", "-o", "wide"},
		{"assess", "-f", "-", "-o", "json"},
		{"assess", "-f", "-", "-o", "yaml"},
		{"assess", "-f", "-", "-o", "csv"},
		{"map", "--config", write(t, oneDriver), "-f", "-", "-o", "table"},
		{"map", "--config", write(t, oneDriver), "-f", "-", "\u202e"},
		{"assess", "--context", "\u009b", "\u202e"},
		{"\u202e\u009b"},
		{"map", "--config", "no\u009b31m\u202e.yaml", "-f", "-"}, // to standard error, as the next
		{"assess", "-f", "no\u009b31m\u202e"},
	} {
		var out, errs bytes.Buffer
		run(args, environment{in: strings.NewReader(pv), out: &out, err: &errs})
		for stream, text := range map[string]string{"stdout": out.String(), "stderr": errs.String()} {
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
				t.Errorf("%q: %s: a terminal would obey %q", args, stream, text[i:])
			}
		}
		var all struct{ Items []struct{ Name string } }
		var err error
		switch args[len(args)-1] {
		case "json":
			err = json.Unmarshal(out.Bytes(), &all)
		case "yaml":
			err = yaml.Unmarshal(out.Bytes(), &all)
		default:
			continue
		}
		if err != nil || len(all.Items) != 1 || all.Items[0].Name != name {
			t.Errorf("%q: %v, %q", args, err, all.Items)
		}
	}
}
