package doctor_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/testenv"
)

// TestDocumented: docs/doctor.md has a row for every kind of finding with its
// severity, and for every field of the document, and none more.
func TestDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	document, kinds, _ := strings.Cut(string(data), "\n## What is found")
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(kinds, -1) {
		documented[row[1]] = row[2]
	}
	all := map[string]string{}
	for _, k := range doctor.Kinds() {
		if all[string(k.ID)] != "" {
			t.Errorf("there are two kinds %s", k.ID)
		}
		all[string(k.ID)] = string(k.Severity)
	}
	if diff := cmp.Diff(all, documented); diff != "" {
		t.Errorf("kinds (-), documented (+):\n%s", diff)
	}
	_, document, _ = strings.Cut(document, "\n## The document")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\|").FindAllStringSubmatch(document, -1) {
		rows = append(rows, row[1])
	}
	if diff := cmp.Diff(testenv.JSONFields(reflect.TypeFor[doctor.Report]()), rows); diff != "" {
		t.Errorf("fields (-), documented (+):\n%s", diff)
	}
}

// TestKinds: each problem has an advice.
func TestKinds(t *testing.T) {
	for _, k := range doctor.Kinds() {
		if (k.Severity == doctor.Error || k.Severity == doctor.Warning) && k.Advice == "" {
			t.Errorf("%s comes without advice", k.ID)
		}
		if k.Severity == doctor.OK && (k.Advice != "" || len(k.Messages) > 0) {
			t.Errorf("%s is in order, and says what to do", k.ID)
		}
	}
}

// TestMessagesAreExplained: the documents have each message that a finding names, in the
// words of the program that prints it.
func TestMessagesAreExplained(t *testing.T) {
	var documented strings.Builder
	for _, name := range []string{"kubelet-messages.md", "troubleshooting.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		documented.Write(text)
	}
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(documented.String(), -1)
	for _, k := range doctor.Kinds() {
		for _, m := range k.Messages {
			if !slices.ContainsFunc(messages, func(row []string) bool { return sameMessage(row[1], m) }) {
				t.Errorf("%s is seen as %q, which no document explains", k.ID, m)
			}
		}
	}
}

// sameMessage reports whether the one is a part of the other, variable parts left
// out.
func sameMessage(documented, named string) bool {
	for part := range strings.SplitSeq(documented, "…") {
		if part = strings.TrimSpace(part); len(part) > 8 && (strings.Contains(named, part) || strings.Contains(part, strings.TrimSuffix(named, "["))) {
			return true
		}
	}
	return false
}
