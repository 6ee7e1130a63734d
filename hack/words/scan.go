package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A find is a term in a file.
type find struct {
	path string
	line int // 0: the file's own name
	term term
}

func (f find) String() string {
	return fmt.Sprintf("%s:%d: %q: write instead: %s", f.path, f.line, f.term.words, f.term.write)
}

// A word is a lower-case part of an identifier or of a sentence, text[from:to].
type word struct {
	text     string
	from, to int
}

// A checker looks for terms in the files of a tree.
type checker struct {
	terms      []term
	exceptions []exception
	used       []bool // exceptions that let something pass
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// tree returns what is found in the Go, Markdown and YAML files below root, without
// generated files and those of testdata, hidden and bin directories.
func (c *checker) tree(root fs.FS) ([]find, error) {
	c.used = make([]bool, len(c.exceptions))
	var finds []find
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(name):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".md", ".yaml", ".yml"}, path.Ext(name)):
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil || path.Ext(name) == ".go" && generated.Match(data) {
			return err
		}
		finds = append(finds, c.file(name, string(data))...)
		return nil
	})
	slices.SortStableFunc(finds, func(a, b find) int { return cmp.Or(cmp.Compare(a.path, b.path), a.line-b.line) })
	return finds, err
}

func skipped(dir string) bool {
	base := path.Base(dir)
	return base == "testdata" || base == "bin" || len(base) > 1 && base[0] == '.'
}

// file returns what is found in the name of a file and in its text.
func (c *checker) file(name, text string) []find {
	finds := c.text(name, path.Base(name))
	for i := range finds {
		finds[i].line = 0
	}
	return append(finds, c.text(name, text)...)
}

func (c *checker) text(name, text string) []find {
	allowed := c.allowed(name, text)
	words := split(text)
	var finds []find
	for _, t := range c.terms {
		for _, at := range occurrences(text, words, t.words) {
			if !slices.ContainsFunc(allowed, func(a [2]int) bool { return a[0] <= at[0] && at[1] <= a[1] }) {
				line := 1 + strings.Count(text[:at[0]], "\n")
				finds = append(finds, find{path: name, line: line, term: t})
			}
		}
	}
	return finds
}

// allowed returns the ranges of text that exceptions are about.
func (c *checker) allowed(name, text string) [][2]int {
	var allowed [][2]int
	for i, e := range c.exceptions {
		if name != e.path && !strings.HasPrefix(name, e.path+"/") && e.path != "" {
			continue
		}
		if e.text == "" {
			allowed, c.used[i] = append(allowed, [2]int{0, len(text)}), true
			continue
		}
		for _, at := range regexp.MustCompile(regexp.QuoteMeta(e.text)).FindAllStringIndex(text, -1) {
			allowed, c.used[i] = append(allowed, [2]int(at)), true
		}
	}
	return allowed
}

var letters = regexp.MustCompile(`\pL+`)

// split returns the words of text. The identifier CSIVolumeID has three.
func split(text string) []word {
	var words []word
	for _, run := range letters.FindAllStringIndex(text, -1) {
		from := run[0]
		for i := from + 1; i < run[1]; i++ {
			if begins(text, i, run[1]) {
				words = append(words, word{strings.ToLower(text[from:i]), from, i})
				from = i
			}
		}
		words = append(words, word{strings.ToLower(text[from:run[1]]), from, run[1]})
	}
	return words
}

// begins tells whether a word begins at i in an identifier: like the V and the I in
// CSIVolumeID.
func begins(text string, i, end int) bool {
	return upper(text[i]) && (lower(text[i-1]) || i+1 < end && lower(text[i+1]))
}

func upper(b byte) bool { return 'A' <= b && b <= 'Z' }
func lower(b byte) bool { return 'a' <= b && b <= 'z' }

// apart is what may stand between two words of a phrase: a line of a comment may
// end there.
var apart = regexp.MustCompile(`^(-|_|[ \t]*(\n[ \t]*(//|#|\*|>)?[ \t]*)?)$`)

// occurrences returns the ranges of text in which the words of phrase follow each
// other.
func occurrences(text string, words []word, phrase string) [][2]int {
	want := split(phrase)
	if len(want) == 0 {
		return nil
	}
	var found [][2]int
	for i := range max(0, len(words)-len(want)+1) {
		if follow(text, words[i:], want) {
			found = append(found, [2]int{words[i].from, words[i+len(want)-1].to})
		}
	}
	return found
}

func follow(text string, words, want []word) bool {
	for i, w := range want {
		if words[i].text != w.text || i > 0 && !apart.MatchString(text[words[i-1].to:words[i].from]) {
			return false
		}
	}
	return true
}
