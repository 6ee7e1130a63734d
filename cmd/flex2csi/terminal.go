package main

import (
	"os"

	"golang.org/x/term"

	"github.com/flex2csi/flex2csi/internal/terminal"
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

// unfiltered returns the stream below the filter of [run].
func unfiltered(stream any) any {
	if w, ok := stream.(*terminal.Writer); ok {
		return w.Unwrap()
	}
	return stream
}
