package main

import (
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestMain lets scripts call flex2csi by its names, which is this test binary by another
// name.
func TestMain(m *testing.M) {
	testscript.Main(testenv.Isolate(m), map[string]func(){"flex2csi": main, plugin: main, completer: main})
}

// TestScript runs the scripts in testdata/script, each of which shows one
// behaviour of the program as its caller sees it.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Condition:           testenv.Condition,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"await": await, "driver": driver},
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// await waits for a file, such as the socket of a daemon that starts.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	for giveUp := time.Now().Add(time.Minute); time.Now().Before(giveUp); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(ts.MkAbs(args[0])); err == nil {
			return
		}
	}
	ts.Fatalf("%s never appears", args[0])
}

// driver makes a copy of flexdriver.
func driver(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: driver FILE")
	}
	program, err := testenv.Program(ts.Getenv("TMPDIR"), "FLEXDRIVER_BINARY", "../flexdriver")
	ts.Check(err)
	data, err := os.ReadFile(program)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o755))
}
