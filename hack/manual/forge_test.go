package manual_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestWorkflows: the forge runs what .ci/run runs, and no action that its author can
// change afterwards.
func TestWorkflows(t *testing.T) {
	uses := 0
	for _, file := range files(t, ".github/workflows", "*.yml") {
		text := read(t, file)
		for _, m := range regexp.MustCompile(`uses: *(.*)`).FindAllStringSubmatch(text, -1) {
			uses++
			if !pinned(m[1]) {
				t.Errorf("%s: %s is not pinned by a commit", file, m[1])
			}
		}
		if !strings.Contains(text, "permissions: {}") {
			t.Errorf("%s: does not begin without permissions", file)
		}
	}
	if uses < 2 {
		t.Errorf("%d actions", uses)
	}
	if !strings.Contains(read(t, ".github/workflows/ci.yml"), "run: .ci/run\n") {
		t.Error("the workflow does not run .ci/run")
	}
}

// TestPinned: a tag or a branch is none.
func TestPinned(t *testing.T) {
	for action, want := range map[string]bool{
		"actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2": true,
		"actions/checkout@v4": false, "actions/checkout@main # v4": false, "actions/checkout@11bd719 # v4": false,
		"actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683": false, // of which release?
	} {
		if pinned(action) != want {
			t.Errorf("%s: want %v", action, want)
		}
	}
}

func pinned(action string) bool {
	return regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d`).MatchString(action)
}
