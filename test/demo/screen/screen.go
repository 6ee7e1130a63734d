// Package screen shows a story to people, step by step, on a terminal or in a log.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A Screen is where the story is shown: a terminal, or a log.
type Screen struct {
	w      io.Writer
	colour bool
	// Width is how many runes a line has.
	Width int
}

const (
	// Widest is a screen without a terminal.
	Widest    = 98
	narrowest = 72

	margin = "   "
	// Indent is before what belongs to the line above.
	Indent  = "     "
	columns = 22 // status and time, at the right
)

// New uses colours only on a terminal, and not where a person has asked
// for none (https://no-color.org).
func New(f *os.File, getenv func(string) string) *Screen {
	s := &Screen{w: f, Width: Widest}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return s
	}
	s.colour = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	if size.Col > 0 {
		s.Width = max(narrowest, min(Widest, int(size.Col)-1))
	}
	return s
}

// A Style is an SGR sequence of ECMA-48.
type Style string

// What is used of it.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "1;31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Paint shows text in a style, where there are colours.
func (s *Screen) Paint(st Style, text string) string {
	if !s.colour || st == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

// Line shows a line as it is.
func (s *Screen) Line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// Heading begins a part of the story.
func (s *Screen) Heading(number int, title string) {
	head := fmt.Sprintf("%d %s", number, title)
	rule := strings.Repeat("─", max(1, s.Width-utf8.RuneCountInString(head)-2))
	s.Line("\n %s %s\n", s.Paint(Bold, head), s.Paint(Dim, rule))
}

// Say tells what is about to happen.
func (s *Screen) Say(text string) {
	for _, l := range Wrap(text, s.Width-len(margin)) {
		s.Line("%s%s", margin, s.Paint(Cyan, l))
	}
}

// Aside is for what one may skip.
func (s *Screen) Aside(text string) {
	for _, l := range Wrap(text, s.Width-len(Indent)) {
		s.Line("%s%s", Indent, s.Paint(Dim, l))
	}
}

// Call shows a command line, what came of it, and how long it took.
func (s *Screen) Call(command, rest, status string, st Style, took time.Duration) {
	room := s.Width - len(margin) - 2 - columns
	rest = Clip(rest, room-utf8.RuneCountInString(command)-1)
	space := strings.Repeat(" ", room-utf8.RuneCountInString(command+rest)-1)
	program, callout, _ := strings.Cut(command, " ")
	s.Line("%s%s %s %s %s%s %s %s", margin, s.Paint(Dim, "›"), s.Paint(Dim, program), s.Paint(Bold, callout), rest, space,
		s.Paint(st, fmt.Sprintf("%-10s", status)), s.Paint(Dim, fmt.Sprintf("%7.1f ms", float64(took.Microseconds())/1000)))
}

// Check shows one thing that was as it should be.
func (s *Screen) Check(what, how string) {
	s.Line("%s%s %-12s %s", Indent, s.Paint(Green, "✓"), what, how)
}

// Wrong shows the one thing that was not.
func (s *Screen) Wrong(err error) {
	for i, l := range Wrap(err.Error(), s.Width-len(Indent)-2) {
		mark := "✗"
		if i > 0 {
			mark = " "
		}
		s.Line("%s%s %s", Indent, s.Paint(Red, mark), s.Paint(Red, l))
	}
}

// Clip shortens text to at most n runes.
func Clip(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:max(0, n-1)]) + "…"
	}
	return text
}

// Wrap breaks text at blanks into lines of at most n runes, longer words apart.
func Wrap(text string, n int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line+" "+word) > n {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
