package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets scripts call flex2csi, which is this test binary by another
// name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"flex2csi": main})
}

// TestScript runs the scripts in testdata/script, each of which shows one
// behaviour of the program as its caller sees it.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
	})
}
