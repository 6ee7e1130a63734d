// Command testsum runs go test and keeps count, over several runs and modules,
// of what passed, failed and was skipped.
//
//	testsum [flags] run  [go test arguments]
//	testsum [flags] fuzz [go test arguments]
//	testsum [flags] total
//
// run prints one line a package, the output of what failed and the reason of
// each skip, and appends the counts to FILE. fuzz does so for each fuzz target
// of the module in the working directory, one after the other, as go test wants
// it. total adds up FILE and prints "N passed, N failed" alone on a line, which
// machines read; -status is the exit status of what ran the steps, so that a
// failure outside the tests is counted too.
//
// With FLEX_TEST_REQUIRE=all a skipped test is a failed one. A step that repeats
// another one's tests with less rights says -skips-are-fine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, errTotal) {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("testsum", flag.ContinueOnError)
	step := flags.String("step", "test", "name of this step")
	results := flags.String("results", "", "file that collects the counts of all steps")
	fine := flags.Bool("skips-are-fine", false, "do not count skips: another step runs those tests")
	status := flags.Int("status", 0, "exit status of what ran the steps")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := &suite{
		counts:    counts{Step: *step},
		out:       &lockedWriter{w: out},
		skipsFine: *fine,
		skipFails: os.Getenv("FLEX_TEST_REQUIRE") == "all",
		verbose:   os.Getenv("V") != "",
	}
	switch mode := flags.Arg(0); mode {
	case "run":
		err := s.goTest(ctx, flags.Args()[1:])
		return s.close(*results, err)
	case "fuzz":
		err := s.fuzz(ctx, ".", flags.Args()[1:])
		return s.close(*results, err)
	case "total":
		return total(*results, *status, out)
	default:
		return fmt.Errorf("unknown mode %q: want run, fuzz or total", mode)
	}
}
