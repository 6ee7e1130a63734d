package main

import (
	"io"
	"os"
	"regexp"
)

// colored returns standard output with words that need attention in color, if it is a terminal
// that has colors, and the user wants them (https://no-color.org).
func colored(out io.Writer) io.Writer {
	if os.Getenv("NO_COLOR") != "" || !canRedraw(out) {
		return out
	}
	return &painter{to: out, bad: regexp.MustCompile(`\b(ERROR|URGENT|NOT FINISHED|INTERRUPTED|PUT BACK)\b`), doubtful: regexp.MustCompile(`\bWARNING\b`)}
}

// painter colors words. It is below [terminal.Writer], so that no other escape sequence is there.
type painter struct {
	to            io.Writer
	bad, doubtful *regexp.Regexp
}

func (p *painter) Write(text []byte) (int, error) {
	const red, yellow, usual = "\x1b[31m", "\x1b[33m", "\x1b[0m"
	painted := p.bad.ReplaceAll(text, []byte(red+"$0"+usual))
	painted = p.doubtful.ReplaceAll(painted, []byte(yellow+"$0"+usual))
	if _, err := p.to.Write(painted); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Unwrap returns what is written to.
func (p *painter) Unwrap() io.Writer { return p.to }
