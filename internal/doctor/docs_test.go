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
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestDocumented: docs/reference/findings.md has every kind of finding, below its severity,
// docs/doctor.md every field of the document, and none more.
func TestDocumented(t *testing.T) {
	page := func(name string) string {
		data, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	documented := documentedKinds(t, page("reference/findings.md"))
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
	_, document, _ := strings.Cut(page("doctor.md"), "\n## The document")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(document, -1) {
		rows = append(rows, quoted(row[1])...)
	}
	if diff := cmp.Diff(testenv.JSONFields(reflect.TypeFor[doctor.Report]()), rows); diff != "" {
		t.Errorf("fields (-), documented (+):\n%s", diff)
	}
}

// documentedKinds are the ids in a text with their severities: in a sentence those
// that are in order, and the others in lists of errors, warnings and notes.
func documentedKinds(t *testing.T, text string) map[string]string {
	t.Helper()
	documented := map[string]string{}
	add := func(severity doctor.Severity, ids []string) {
		for _, id := range ids {
			if documented[id] != "" {
				t.Errorf("%s is documented twice", id)
			}
			documented[id] = string(severity)
		}
	}
	var severity doctor.Severity
	for line := range strings.SplitSeq(text, "\n") {
		switch line {
		case "Errors:":
			severity = doctor.Error
		case "Warnings:":
			severity = doctor.Warning
		case "Notes:":
			severity = doctor.Info
		}
		if _, ids, ok := strings.Cut(line, "in their order: "); ok {
			add(doctor.OK, quoted(ids))
		} else if entry := regexp.MustCompile("^- (`[^`]+`(?:, `[^`]+`)*): ").FindStringSubmatch(line); entry != nil {
			add(severity, quoted(entry[1]))
		}
	}
	return documented
}

// quoted are the words of a text that are marked as code.
func quoted(text string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
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

// TestMessagesAreExplained: docs/troubleshooting.md has each message that a finding names,
// in the words of the program that prints it.
func TestMessagesAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, entry := range regexp.MustCompile("(?m)^- (`[^`]+`(?:, `[^`]+`)*): ").FindAllStringSubmatch(string(text), -1) {
		messages = append(messages, quoted(entry[1])...)
	}
	for _, k := range doctor.Kinds() {
		for _, m := range k.Messages {
			if !slices.ContainsFunc(messages, func(documented string) bool { return sameMessage(documented, m) }) {
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
