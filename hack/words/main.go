// Command words looks in names, comments, messages and documents for words that
// the project does not use, because Kubernetes has other ones or because they make
// a sentence hard to read. Folders that are not done yet are in notyet.txt, which
// only shrinks.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

//go:embed notyet.txt
var notYet string

func main() {
	count := flag.Bool("count", false, "count the words of each folder instead, also of those that are not done yet")
	flag.Parse()
	if err := run(os.Stdout, *count); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, count bool) error {
	c := checker{terms: terms(), exceptions: exceptions()}
	finds, err := c.tree(os.DirFS("."))
	if err != nil {
		return err
	}
	if count {
		printCounts(out, finds)
		return nil
	}
	problems := c.problems(finds, strings.Fields(notYet))
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems; exceptions are in hack/words/list.go", len(problems))
	}
	return nil
}

// problems returns a line for each find outside of the folders that are not done
// yet, and for each of those folders and exceptions that has become unnecessary.
func (c *checker) problems(finds []find, notYet []string) []string {
	var problems []string
	unfinished := map[string]bool{}
	for _, f := range finds {
		dir := path.Dir(f.path)
		unfinished[dir] = true
		if !slices.Contains(notYet, dir) {
			problems = append(problems, f.String())
		}
	}
	for _, dir := range notYet {
		if !unfinished[dir] {
			problems = append(problems, fmt.Sprintf("%s is done: remove it from hack/words/notyet.txt", dir))
		}
	}
	for i, e := range c.exceptions {
		if !c.used[i] {
			problems = append(problems, fmt.Sprintf("exception %q in %q lets nothing pass: remove it from hack/words/list.go", e.text, e.path))
		}
	}
	return problems
}

func printCounts(out io.Writer, finds []find) {
	dirs, words := map[string]int{}, map[string]int{}
	for _, f := range finds {
		dirs[path.Dir(f.path)]++
		words[f.term.words]++
	}
	for _, counts := range []map[string]int{words, dirs} {
		for _, name := range sorted(counts) {
			fmt.Fprintf(out, "%5d %s\n", counts[name], name)
		}
	}
	fmt.Fprintf(out, "%5d in %d folders\n", len(finds), len(dirs))
}

func sorted(counts map[string]int) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return names
}
