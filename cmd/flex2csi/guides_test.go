package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGuides: the pages that people type commands from name commands, flags, presets and
// manifests that are there.
func TestGuides(t *testing.T) {
	for _, page := range []string{"rook.md", "alibaba-ack.md", "oracle-oci.md", "cifs.md", "migrate-guide.md"} {
		data, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		text := shellBlocks(string(data))
		commands := commandLines(text)
		for _, args := range commands {
			if fault := faultOf(args); fault != "" {
				t.Errorf("%s: flex2csi %s: %s", page, strings.Join(args, " "), fault)
			}
		}
		if len(commands) < 8 {
			t.Errorf("%s: only %d commands", page, len(commands))
		}
		for _, path := range regexp.MustCompile(`\binstall/[a-z][\w./-]*\w`).FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

// TestGuidesRefused: what TestGuides must not take.
func TestGuidesRefused(t *testing.T) {
	for _, line := range []string{"migrate aply", "migrate plan --al", "preset show no-such", "preset show --set ocid=x oci-block", "check --config"} {
		if faultOf(strings.Fields(line)) == "" {
			t.Errorf("taken: %s", line)
		}
	}
	if got := commandLines("x=$(kubectl exec p -- /flex2csi status)\nuntil flex2csi map -f - | grep a; do b; done # flex2csi c\n"); len(got) != 2 || strings.Join(got[0], " ") != "status" || strings.Join(got[1], " ") != "map -f -" {
		t.Errorf("found %q", got)
	}
}

// shellBlocks returns the fenced blocks of shell in Markdown.
func shellBlocks(text string) string {
	var all strings.Builder
	for _, m := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all.WriteString(m[1])
	}
	return all.String()
}

// commandLines are the arguments of each call of flex2csi.
func commandLines(text string) (all [][]string) {
	comment := regexp.MustCompile(`\s#.*`)
	call := regexp.MustCompile(`(?:^|[|;&(]|\buntil|\bwhile|/)\s*flex2csi ([^|;&>)]*)`)
	for line := range strings.Lines(text) {
		for _, m := range call.FindAllStringSubmatch(comment.ReplaceAllString(line, ""), -1) {
			all = append(all, strings.Fields(m[1]))
		}
	}
	return all
}

// faultOf says what flex2csi does not take. Presets are shown, and checked.
func faultOf(args []string) string {
	c, rest, err := newRoot().Find(args)
	if err != nil || c.RunE == nil && c.Run == nil || len(c.Commands()) > 0 {
		return "no such command"
	}
	if err := c.ParseFlags(rest); err != nil {
		return err.Error()
	}
	if !strings.HasPrefix(strings.Join(args, " "), "preset show ") {
		return ""
	}
	var config, errs bytes.Buffer
	if run(args, environment{in: strings.NewReader(""), out: &config, err: &errs}) != 0 {
		return errs.String()
	}
	if errs.Len() > 0 {
		return errs.String() // something is to be filled in
	}
	if run([]string{"check", "--quiet", "--config", "-"}, environment{in: &config, out: io.Discard, err: &errs}) != 0 {
		return errs.String()
	}
	return ""
}
