package main

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a stream of the process is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// canRedraw reports whether a stream of the process is a terminal that knows escape
// sequences.
func canRedraw(stream any) bool {
	return isTerminal(stream) && os.Getenv("TERM") != "dumb" && escapes(stream.(*os.File))
}
