package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// printer writes the table line by line as the figures come in.
type printer struct {
	w   io.Writer
	tty bool
}

func newPrinter(w io.Writer, tty bool) *printer { return &printer{w, tty} }

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

// paint colours text for a terminal.
func (p *printer) paint(style, text string) string {
	if !p.tty {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

const layout = "%-52s %9s  %-11s %7s  "

func (p *printer) header() {
	fmt.Fprintf(p.w, "flexdriver against a Go program that does nothing (%s, %d CPUs, %s).\nMedians of rounds in turns; the spread is that of the middle half.\n\n",
		runtime.Version(), runtime.NumCPU(), machine())
	fmt.Fprintln(p.w, p.paint(bold, fmt.Sprintf(layout+"%-7s %s", "what", "measured", "spread", "goal", "", "figures")))
}

// busy says what is being measured, until the next line takes its place.
func (p *printer) busy(what string) {
	if p.tty {
		fmt.Fprintf(p.w, "\r\x1b[K%s", p.paint(dim, "measuring: "+what+" …"))
	}
}

func (p *printer) row(r row) {
	if p.tty {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	digits := 2
	if r.figure.value < 0.1 {
		digits = 3
	}
	number := func(f float64) string { return fmt.Sprintf("%.*f", digits, f) }
	spread := number(r.figure.low) + "–" + number(r.figure.high)
	if r.figure.low == r.figure.high {
		spread = ""
	}
	goal, result := "", strings.Repeat(" ", 7)
	if r.goal != nil {
		sign := "≤"
		if r.goal.atLeast {
			sign = "≥"
		}
		goal, result = fmt.Sprintf("%s %.2f", sign, r.goal.limit), p.paint(green, "met    ")
		if r.missed() {
			result = p.paint(red, "missed ")
		}
	}
	fmt.Fprintf(p.w, layout+"%s %s\n", r.what, number(r.figure.value)+r.unit, spread, goal, result, p.paint(dim, r.note))
}

func (p *printer) footer(took time.Duration) {
	fmt.Fprintf(p.w, "\n%s\n", p.paint(dim, fmt.Sprintf("%v in all, at load %s", took.Round(time.Second), load())))
}

// section begins a table of the profile.
func (p *printer) section(title string) { fmt.Fprintf(p.w, "\n%s\n", p.paint(bold, title)) }

func (p *printer) line(format string, args ...any) { fmt.Fprintf(p.w, "  "+format+"\n", args...) }
