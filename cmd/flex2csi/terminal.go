package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a stream of the process is a terminal.
func isTerminal(stream any) bool {
	file, ok := unfiltered(stream).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// canRedraw reports whether a stream of the process is a terminal that knows escape
// sequences.
func canRedraw(stream any) bool {
	return isTerminal(stream) && os.Getenv("TERM") != "dumb" && escapes(unfiltered(stream).(*os.File))
}

// unfiltered returns the stream below all filters.
func unfiltered(stream any) any {
	for {
		w, ok := stream.(interface{ Unwrap() io.Writer })
		if !ok {
			return stream
		}
		stream = w.Unwrap()
	}
}
