//go:build unix

package main

import (
	"os"
	"syscall"
)

func escapes(*os.File) bool { return true }

// terminalStops are the signals by which a terminal stops a process: Ctrl-Z, and a read or write
// in the background.
func terminalStops() []os.Signal {
	return []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
}
