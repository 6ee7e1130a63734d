package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

// text prints a report for a terminal, with a blank line before each block.
func (r *Report) text(out io.Writer) error {
	p := &printer{Writer: bufio.NewWriter(out)}
	for i := range r.Sections {
		p.section(&r.Sections[i])
	}
	return p.Flush() // returns the error of any Write
}

type printer struct {
	*bufio.Writer
	begun bool
	width int
}

func (p *printer) block() {
	if p.begun {
		_ = p.WriteByte('\n')
	}
	p.begun = true
}

func (p *printer) section(s *Section) {
	p.width = s.Width
	depth := 0
	if s.Heading != "" && len(s.Notes) > 0 {
		p.block()
		p.line(0, s.Heading)
		depth = 1
	}
	if s.Rows != nil {
		p.block()
		p.rows(s.Rows)
	}
	for i, n := range s.Notes {
		if s.Heading == "" && (i == 0 || !s.Lines) {
			p.block()
		}
		if s.Numbered {
			n.Text = fmt.Sprintf("%d. %s", i+1, n.Text)
		}
		p.note(depth, &n)
	}
}

func (p *printer) rows(t *Rows) {
	w := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(t.Columns, "\t")))
	for cells := range t.All {
		for i, cell := range cells {
			if i > 0 {
				_, _ = io.WriteString(w, "\t")
			}
			_, _ = io.WriteString(w, cmp.Or(OneLine(cell), "-"))
		}
		_, _ = io.WriteString(w, "\n")
	}
	_ = w.Flush()
}

func (p *printer) note(depth int, n *Note) {
	p.line(depth, n.Text)
	for i := range n.Notes {
		p.note(depth+1, &n.Notes[i])
	}
	if n.Next != "" {
		p.line(depth+1, "→ "+n.Next)
	}
	for line := range strings.Lines(n.Command) {
		p.indented(depth+2, terminal.Safe(strings.TrimSuffix(line, "\n")))
	}
}

// line prints a text, broken at spaces if it is too wide.
func (p *printer) line(depth int, text string) {
	text = OneLine(text)
	next := depth + 2
	for room := p.width - 2*depth; p.width > 0 && len(text) > room; room = p.width - 2*depth {
		end := strings.LastIndexByte(text[:max(0, room)+1], ' ')
		if end < 0 {
			end = strings.IndexByte(text, ' ')
		}
		if end < 0 {
			break
		}
		p.indented(depth, text[:end])
		text, depth = text[end+1:], next
	}
	p.indented(depth, text)
}

func (p *printer) indented(depth int, line string) {
	_, _ = p.WriteString(strings.Repeat("  ", depth) + line + "\n")
}

// OneLine is a text without what would break a table, forge a line or move the cursor.
func OneLine(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(terminal.Safe(text))
}
