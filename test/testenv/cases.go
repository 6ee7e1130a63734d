package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Case returns the objects of a cluster from dir/base.yaml and dir/NAME.yaml. Edits are texts
// that occur there, each with what replaces it first; an empty one is a document to add.
func Case(t testing.TB, dir, name string, edits ...string) string {
	t.Helper()
	var all []string
	for _, file := range []string{"base.yaml", name + ".yaml"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	text := strings.Join(all, "---\n")
	for i := 0; i+1 < len(edits); i += 2 {
		switch was := edits[i]; {
		case was == "":
			text += "---\n" + edits[i+1]
		case !strings.Contains(text, was):
			t.Fatalf("%s has no %q", name, was)
		default:
			text = strings.Replace(text, was, edits[i+1], 1)
		}
	}
	return text
}
