package bridgestatus_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/testenv"
)

// TestDocumented: docs/status.md has a row for every field, and none more.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	document, _, _ := strings.Cut(string(text), "\n## Phases")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\|").FindAllStringSubmatch(document, -1) {
		documented = append(documented, row[1])
	}
	fields := testenv.JSONFields(reflect.TypeFor[bridgestatus.BridgeStatus]())
	if diff := cmp.Diff(fields, documented); diff != "" {
		t.Error(diff)
	}
	for _, p := range bridgestatus.Phases() {
		if !strings.Contains(string(text), "`"+string(p)+"`") {
			t.Errorf("phase %s is not explained", p)
		}
	}
}

// TestAttachmentsDocumented: docs/status.md names every field of what status
// --attachments shows.
func TestAttachmentsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## VolumeAttachments")
	for _, field := range testenv.JSONFields(reflect.TypeFor[bridgestatus.ClusterAttachment]()) {
		if !strings.Contains(section, "`"+field+"`") {
			t.Errorf("%s is not explained", field)
		}
	}
}
