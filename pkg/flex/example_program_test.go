package flex_test

import (
	"log/slog"
	"os"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// The kubelet passes no flags. A driver that logs the kubelet's calls says where.
func ExampleProgram() {
	program := flex.Program{Name: "shares", Driver: func(in *flex.Invocation) *flex.Driver {
		in.Log("journal", slog.LevelInfo) // or the path of a file
		return shares()
	}}
	os.Exit(program.Run(os.Args))
}
