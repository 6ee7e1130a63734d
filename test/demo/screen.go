package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A screen is where the story is shown: a terminal, or a log.
type screen struct {
	w      io.Writer
	colour bool
	width  int
}

const (
	widest    = 98
	narrowest = 72

	margin  = "   "
	indent  = "     "
	columns = 22 // status and time, at the right
)

// newScreen uses colours only on a terminal, and not where a person has asked
// for none (https://no-color.org).
func newScreen(f *os.File, getenv func(string) string) *screen {
	s := &screen{w: f, width: widest}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return s
	}
	s.colour = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	if size.Col > 0 {
		s.width = max(narrowest, min(widest, int(size.Col)-1))
	}
	return s
}

// style is an SGR sequence of ECMA-48.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "1;31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

func (s *screen) paint(st style, text string) string {
	if !s.colour || st == plain || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

func (s *screen) line(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// heading begins a part of the story.
func (s *screen) heading(number int, title string) {
	head := fmt.Sprintf("%d %s", number, title)
	rule := strings.Repeat("─", max(1, s.width-utf8.RuneCountInString(head)-2))
	s.line("\n %s %s\n", s.paint(bold, head), s.paint(dim, rule))
}

// say tells what is about to happen.
func (s *screen) say(text string) {
	for _, l := range wrap(text, s.width-len(margin)) {
		s.line("%s%s", margin, s.paint(cyan, l))
	}
}

// aside is for what one may skip.
func (s *screen) aside(text string) {
	for _, l := range wrap(text, s.width-len(indent)) {
		s.line("%s%s", indent, s.paint(dim, l))
	}
}

// call shows a command line, what came of it, and how long it took.
func (s *screen) call(command, rest, status string, st style, took time.Duration) {
	room := s.width - len(margin) - 2 - columns
	rest = clip(rest, room-utf8.RuneCountInString(command)-1)
	space := strings.Repeat(" ", room-utf8.RuneCountInString(command+rest)-1)
	program, callout, _ := strings.Cut(command, " ")
	s.line("%s%s %s %s %s%s %s %s", margin, s.paint(dim, "›"), s.paint(dim, program), s.paint(bold, callout), rest, space,
		s.paint(st, fmt.Sprintf("%-10s", status)), s.paint(dim, fmt.Sprintf("%7.1f ms", float64(took.Microseconds())/1000)))
}

// check shows one thing that was as it should be.
func (s *screen) check(what, how string) {
	s.line("%s%s %-12s %s", indent, s.paint(green, "✓"), what, how)
}

// wrong shows the one thing that was not.
func (s *screen) wrong(err error) {
	for i, l := range wrap(err.Error(), s.width-len(indent)-2) {
		mark := "✗"
		if i > 0 {
			mark = " "
		}
		s.line("%s%s %s", indent, s.paint(red, mark), s.paint(red, l))
	}
}

// clip shortens text to at most n runes.
func clip(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:max(0, n-1)]) + "…"
	}
	return text
}

// wrap breaks text at blanks into lines of at most n runes, longer words apart.
func wrap(text string, n int) (lines []string) {
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
