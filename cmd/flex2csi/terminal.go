package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a stream of the process is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
