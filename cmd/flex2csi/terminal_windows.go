package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// escapes asks the console to obey escape sequences, which it does not do by itself
// (https://learn.microsoft.com/windows/console/console-virtual-terminal-sequences).
func escapes(f *os.File) bool {
	console := windows.Handle(f.Fd())
	var mode uint32
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

func terminalStops() []os.Signal { return nil }
