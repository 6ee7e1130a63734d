package manual

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// A Document is one in docs that is a page of the manual as well.
type Document struct {
	Path    string // below docs
	Name    string
	Section int
	Summary string
}

// Documents are those to read on a node.
func Documents() []Document {
	return []Document{
		{"bridge-configuration.md", "flex2csi-config", 5, "configuration of the bridge"},
		{"configuration.md", "flexdriver-config", 5, "configuration of a FlexVolume driver, .flexdriver.json"},
		{"mapping.md", "flex2csi-mapping", 7, "map FlexVolumes to CSI volumes"},
		{"troubleshooting.md", "flex2csi-troubleshooting", 7, "symptoms and messages, their causes and what to do"},
	}
}

// manual is how manuals refer to it.
func (d *Document) manual() string { return fmt.Sprintf("%s(%d)", d.Name, d.Section) }

// File is its page of the manual, in the repository.
func (d *Document) File() string { return fmt.Sprintf("man/%s.%d", d.Name, d.Section) }

// Man makes the page of the text of the document.
func (d *Document) Man(text string) string {
	_, text, _ = strings.Cut(text, "\n") // the title
	page := fmt.Sprintf("# %s %d \"\" \"flex2csi\" \"flex2csi\"\n\n## NAME\n\n%s - %s\n\n## DESCRIPTION\n\n%s\n\n## SEE ALSO\n\n%s\n",
		strings.ToUpper(d.Name), d.Section, d.Name, d.Summary, strings.TrimSpace(withoutTables(plainLinks(text))), d.seeAlso())
	return string(md2man.Render([]byte(page)))
}

// seeAlso names the other pages that readers may want.
func (d *Document) seeAlso() string {
	all := []string{"**flex2csi**(1)", "**flexdriver**(1)"}
	for _, other := range Documents() {
		if other.Name != d.Name {
			all = append(all, fmt.Sprintf("**%s**(%d)", other.Name, other.Section))
		}
	}
	return strings.Join(all, ", ")
}

// withoutTables turns tables into lists, since their rows are longer than a terminal's:
// the longest column describes the first cell of a row.
func withoutTables(text string) string {
	var out []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "|") {
			out = append(out, lines[i])
			continue
		}
		headers := cells(lines[i])
		var rows [][]string
		for i += 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
			rows = append(rows, cells(lines[i]))
		}
		i--
		main := longest(rows, len(headers))
		for _, row := range rows {
			out = append(out, term(headers, row, main), ":   "+cmp.Or(row[main], "–"), "")
		}
	}
	return strings.Join(out, "\n")
}

// longest is the column with most in it, but for the first one.
func longest(rows [][]string, columns int) int {
	best, most := columns-1, -1
	for column := columns - 1; column > 0; column-- {
		sum := 0
		for _, row := range rows {
			sum += len(row[column])
		}
		if sum > most {
			best, most = column, sum
		}
	}
	return best
}

// term is what stands before the description: all of a row but that.
func term(headers, row []string, main int) string {
	var b strings.Builder
	b.WriteString(row[0])
	for i := 1; i < len(row); i++ {
		if i != main && row[i] != "" && row[i] != "–" {
			fmt.Fprintf(&b, " (%s%s)", strings.TrimPrefix(headers[i]+": ", ": "), row[i])
		}
	}
	return b.String()
}

// cells are those of a row. A bar that is text has a backslash.
func cells(row string) []string {
	all := strings.Split(strings.ReplaceAll(strings.Trim(row, "|"), `\|`, "\x00"), "|")
	for i, cell := range all {
		all[i] = strings.TrimSpace(strings.ReplaceAll(cell, "\x00", "|"))
	}
	return all
}

// plainLinks writes out where links lead to, but for those to the network.
func plainLinks(text string) string {
	return regexp.MustCompile(`\[([^]]+)\]\(([^):]+)\)`).ReplaceAllStringFunc(text, func(link string) string {
		label, target, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(link, "["), ")"), "](")
		file, _, _ := strings.Cut(target, "#")
		if file == "" { // of the same page
			return label
		}
		where := path.Join("docs", file)
		for _, d := range Documents() {
			if d.Path == file {
				where = d.manual()
			}
		}
		if label == file || label == where {
			return where
		}
		return label + " (" + where + ")"
	})
}
