// Command words looks in names, comments, messages and documents for words that
// the project does not use, because Kubernetes has other ones or because they make
// a sentence hard to read.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

func main() {
	finds, err := find(os.DirFS("."), terms(), allowed())
	if err == nil && len(finds) > 0 {
		err = fmt.Errorf("%d words to replace; the list is hack/words/list.go", len(finds))
	}
	for _, f := range finds {
		fmt.Fprintln(os.Stdout, f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

// find returns a line for each term in the Go, Markdown and YAML files below root and
// in their names. It leaves out generated files, its own list, and what is in testdata,
// bin and hidden directories.
func find(root fs.FS, terms []term, allowed []string) ([]string, error) {
	patterns := make([]*regexp.Regexp, len(terms))
	for i, t := range terms {
		patterns[i] = t.pattern()
	}
	var finds []string
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
		text := path.Base(name) + "\n" + string(data) // so line 0 is the file's name
		for _, a := range allowed {
			text = strings.ReplaceAll(text, a, strings.Repeat("-", len(a)))
		}
		lower := strings.ToLower(text)
		for i, t := range terms {
			if !containsAll(lower, strings.Fields(strings.ToLower(t.words))) {
				continue // a hundred times as fast as the pattern
			}
			for _, at := range patterns[i].FindAllStringIndex(text, -1) {
				line := strings.Count(text[:at[0]+1], "\n")
				finds = append(finds, fmt.Sprintf("%s:%d: %q: write instead: %s", name, line, t.words, t.write))
			}
		}
		return nil
	})
	return finds, err
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func skipped(dir string) bool {
	base := path.Base(dir)
	return dir == "hack/words" || base == "testdata" || base == "bin" || len(base) > 1 && base[0] == '.'
}

// pattern matches the words in a sentence, where a line of a comment may end between
// two of them, and in an identifier: theirTombstone, TombstoneDir.
func (t term) pattern() *regexp.Regexp {
	words := strings.Fields(t.words)
	title := make([]string, len(words))
	for i, w := range words {
		title[i] = strings.ToUpper(w[:1]) + w[1:]
		words[i] = "(?:" + w + "|" + title[i] + "|" + strings.ToUpper(w) + ")"
	}
	const apart = `(?:-|_|[ \t]*(?:\n[ \t]*(?://|#|\*|>)?[ \t]*)?)`
	return regexp.MustCompile(`(?:^|[^\pL])` + strings.Join(words, apart) + `(?:$|[^\pL])` +
		`|\p{Ll}` + strings.Join(title, "") + `(?:$|[^\p{Ll}])|` + strings.Join(title, "") + `\p{Lu}`)
}
