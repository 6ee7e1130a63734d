package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const repository = "https://github.com/flex2csi/flex2csi"

// writeNotes writes the release notes: the version's section of CHANGELOG.md.
func (r *release) writeNotes(unreleased bool) error {
	text, err := os.ReadFile(filepath.Join(r.clone, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(r.version, "v")
	notes, ok := section(string(text), number)
	if !ok && !unreleased {
		return fmt.Errorf("make the release notes: CHANGELOG.md has no section [%s]; rename [Unreleased], or take that with UNRELEASED=1", number)
	}
	if !ok {
		notes, ok = section(string(text), "Unreleased")
	}
	if !ok || notes == "" {
		return errors.New("make the release notes: the section of CHANGELOG.md is empty")
	}
	notes = absolute(notes, repository+"/blob/"+r.version+"/")
	return os.WriteFile(filepath.Join(r.dir, "RELEASE_NOTES.md"), []byte("# flex2csi "+r.version+"\n\n"+notes+"\n"), 0o644)
}

// section returns what is below a heading of the form ## [name] or ## [name] - date.
func section(changelog, name string) (text string, ok bool) {
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(name) + `\].*\n`).FindStringIndex(changelog)
	if heading == nil {
		return "", false
	}
	text, _, _ = strings.Cut(changelog[heading[1]:], "\n## ")
	return strings.TrimSpace(text), true
}

// absolute makes links within the repository work elsewhere.
func absolute(markdown, base string) string {
	return regexp.MustCompile(`\]\(([^):]+)\)`).ReplaceAllString(markdown, "]("+base+"$1)")
}
