// Package htmlreport writes a report as one HTML file that loads nothing from elsewhere:
// facts, bar charts and a table that can be filtered and sorted. All texts of a report are
// taken as hostile: they are nodes of a tree, which is escaped as a whole, and the file's
// policy allows no script but its own.
//
// It is no template. Templates call methods by their names, and so the linker would have to
// keep all exported methods of all types in flex2csi, the daemon, too: a fifth of its size
// and an eighth of its memory.
package htmlreport

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the parts of the page
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// A Report is a page.
type Report struct {
	Title    string
	Subtitle string
	Facts    []Fact
	Charts   []Chart
	// Notes are what the reader has to know or to do.
	Notes []Note
	Table Table
}

// A Fact is a number, or another short text, with its name.
type Fact struct{ Name, Value string }

// A Chart shows how often something is. Its bars are sorted, the largest first.
type Chart struct {
	Title string
	Bars  []Bar
	// Others is what has no bar, because there would be too many; nil: nothing.
	Others *Bar
}

// A Bar of a chart.
type Bar struct {
	Name  string
	Count int
}

// A Note is a sentence, with a command that goes with it.
type Note struct {
	Heading string // of a group: the notes before have another one
	Text    string
	Do      string
	Command string
}

// A Table has a text for each cell.
type Table struct {
	Columns []string
	Rows    [][]string
}

// most is how many bars a chart has.
const most = 12

// Count makes a chart of texts. Those that are empty are left out.
func Count(title string, texts []string) Chart {
	counts := map[string]int{}
	for _, text := range texts {
		if text != "" {
			counts[text]++
		}
	}
	c := Chart{Title: title}
	for name, n := range counts {
		c.Bars = append(c.Bars, Bar{name, n})
	}
	c.Sort()
	return c
}

// Sort puts the largest first, and adds up those that are too many.
func (c *Chart) Sort() {
	slices.SortFunc(c.Bars, func(a, b Bar) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Name, b.Name)) })
	if rest := len(c.Bars) - most; rest > 1 {
		c.Others = &Bar{Name: fmt.Sprintf("%d others", rest)}
		for _, b := range c.Bars[most:] {
			c.Others.Count += b.Count
		}
		c.Bars = c.Bars[:most]
	}
}

// Width is the length of a bar in percent of the longest: the least that is something can be
// seen.
func (c Chart) Width(b Bar) string {
	if b.Count == 0 {
		return "0%"
	}
	longest := 1
	for _, other := range c.Bars {
		longest = max(longest, other.Count)
	}
	return fmt.Sprintf("%.1f%%", max(1, 100*float64(b.Count)/float64(longest)))
}

//go:embed page.css
var style string

//go:embed page.js
var script string

// Write writes the page.
func Write(w io.Writer, r *Report) error {
	page := &html.Node{Type: html.DocumentNode}
	page.AppendChild(&html.Node{Type: html.DoctypeNode, Data: "html"})
	element("html", attribute("lang", "en"), r.head(), r.body())(page)
	return html.Render(w, page)
}

// source allows the text of one element, by its digest.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
