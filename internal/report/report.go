// Package report is what a command has found out, and the ways to print that: as tables and notes
// for a terminal, as CSV, or as a page. JSON and YAML are of the document of the command: their
// fields are a contract.
//
// All texts are taken as hostile: objects of a cluster and other programs choose many of them.
package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// A View is a way to print a report. Several may be added up.
type View int

// The views.
const (
	Table View = 1 << iota
	Wide       // a table with more columns and notes
	CSV
	Page // HTML
)

// A Report is what a command has found out.
type Report struct {
	Title, Subtitle string // of a page, as the facts and charts
	Facts           []Fact
	Charts          []Chart
	Sections        []Section
}

// A Section is a table, or notes. Notes without a heading have a blank line between them.
type Section struct {
	Heading string
	Rows    *Rows
	Notes   []Note
	// Numbered notes are steps. Lines have no blank line between them.
	Numbered, Lines bool
	// Width is how many columns a line of text has at most; 0: any number.
	Width int
}

// A Note is a finding, or another sentence that the reader has to know.
type Note struct {
	Text    string
	Next    string // what to do about it
	Command string // that does it; may have several lines
	Notes   []Note // what belongs to it
}

// Notes makes notes of texts.
func Notes(texts ...string) (all []Note) {
	for _, text := range texts {
		all = append(all, Note{Text: text})
	}
	return all
}

// Rows are a table. Its cells are made one row at a time: there may be thousands.
type Rows struct {
	Columns []string
	All     iter.Seq[[]string]
}

// Of makes a table of rows.
func Of[R any](rows []R, cells func(R) []string, columns ...string) *Rows {
	return &Rows{columns, func(yield func([]string) bool) {
		for _, row := range rows {
			if !yield(cells(row)) {
				return
			}
		}
	}}
}

// Write prints a report.
func (r *Report) Write(out io.Writer, view View) error {
	switch view {
	case CSV:
		return r.csv(out)
	case Page:
		return r.page(out)
	}
	return r.text(out)
}

// csv prints the tables.
func (r *Report) csv(out io.Writer) error {
	w := csv.NewWriter(out)
	for _, s := range r.Sections {
		if s.Rows == nil {
			continue
		}
		_ = w.Write(s.Rows.Columns)
		for cells := range s.Rows.All {
			for i, cell := range cells {
				if strings.IndexAny(cell, "=+-@\t\r") == 0 { // a spreadsheet would execute it
					cells[i] = "'" + cell
				}
			}
			_ = w.Write(cells)
		}
	}
	w.Flush()
	return w.Error() // of any Write
}

// A Fact is a number, or another short text, with its name.
type Fact struct{ Name, Value string }

// A Chart shows how often something is.
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

// most is how many bars a chart has.
const most = 12

// Count makes a chart of texts of rows. Those that are empty are left out.
func Count[R any](title string, rows []R, texts func(R) []string) Chart {
	counts := map[string]int{}
	for _, row := range rows {
		for _, text := range texts(row) {
			if text != "" {
				counts[text]++
			}
		}
	}
	return Sorted(title, counts)
}

// Sorted makes a chart with the largest bar first. Those that are too many are added up.
func Sorted(title string, counts map[string]int) Chart {
	c := Chart{Title: title}
	for name, n := range counts {
		c.Bars = append(c.Bars, Bar{name, n})
	}
	slices.SortFunc(c.Bars, func(a, b Bar) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Name, b.Name)) })
	if rest := len(c.Bars) - most; rest > 1 {
		c.Others = &Bar{Name: fmt.Sprintf("%d others", rest)}
		for _, b := range c.Bars[most:] {
			c.Others.Count += b.Count
		}
		c.Bars = c.Bars[:most]
	}
	return c
}

// width is the length of a bar in percent of the longest: the least that is something can be
// seen.
func (c Chart) width(b Bar) string {
	if b.Count == 0 {
		return "0%"
	}
	longest := 1
	for _, other := range c.Bars {
		longest = max(longest, other.Count)
	}
	return fmt.Sprintf("%.1f%%", max(1, 100*float64(b.Count)/float64(longest)))
}
