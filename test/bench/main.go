// Command bench measures flexdriver against a Go program that does nothing. It builds
// both, runs them in turns, and prints the ratios with their goals:
//
//	go run ./test/bench
//
// It says how fast and how large things are and judges nothing by its exit
// status, which is 0 unless something broke: speed is no test. Ratios within
// one run are what can be compared; times depend on the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	set := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	set.SetOutput(os.Stderr)
	only := set.StringArray("only", nil, "measure only these `groups`; may be repeated: "+groupNames())
	saveTo := set.String("save", os.DevNull, "write the figures to this `file`, for benchstat")
	commit := set.String("commit", "", "with --save: the `commit` that is measured")
	profile := set.Bool("profile", false, "say where time and size go even if no goal is missed")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, inside := os.LookupEnv(envDir)
	if !inside {
		return isolate(ctx, os.Stdout, os.Stderr)
	}
	file, err := os.Create(*saveTo)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := saveHead(file, *commit); err != nil {
		return err
	}
	b, err := newBench(ctx, dir, newPrinter(os.Stdout, isTerminal(os.Stdout)), file)
	if err != nil {
		return err
	}
	return errors.Join(b.run(*only, *profile), file.Close())
}
