// Command mutants makes the program wrong at one place at a time, and looks whether a test
// notices. It lists the places where none does.
//
// All places of all packages are compiled at once, into one test program for each package; an
// environment variable chooses the one that is wrong (package point). Only tests run that reach
// a place with a value at which it makes a difference.
//
// A condition is made always or never true; one side of && and || is left out; a comparison is
// moved by one; a statement, or a call for an error, is left out; an error is swallowed; a
// constant is exchanged for another one of its type. A negated condition is noticed by each test
// that notices one that is always or never true, so there is none.
package main

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/tools/go/packages"
)

const modulePath = "github.com/flex2csi/flex2csi"

type config struct {
	results string
	seed    string
	budget  time.Duration
	list    bool
	tests   []string
}

func main() {
	var c config
	flag.StringVar(&c.results, "results", "bin/mutants.json", "file that keeps what killed a mutant, to try that first")
	flag.StringVar(&c.seed, "seed", "", "text that gives the order: with a budget, which mutants run")
	flag.DurationVar(&c.budget, "budget", 0, "how long mutants run; 0 is all of them")
	flag.BoolVar(&c.list, "list", false, "print the mutants and run none")
	flag.Func("tests", "further packages with tests of these; may be repeated", func(p string) error {
		c.tests = append(c.tests, p)
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Stdout, c, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, c config, patterns []string) error {
	f, err := load(ctx, patterns)
	if err != nil {
		return err
	}
	if c.list {
		for _, m := range f.mutants {
			fmt.Fprintln(out, m.Key)
		}
		return nil
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return fmt.Errorf("make a work directory: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil { // as /tmp is: tests become other users
		return fmt.Errorf("open the work directory: %w", err)
	}
	b := &bench{work: work, log: func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }}
	tests, err := b.prepare(ctx, f, append(patterns, c.tests...))
	if err != nil {
		return err
	}
	r, err := readResults(c.results)
	if err != nil {
		return err
	}
	if err := b.runAll(ctx, c, f.mutants, tests, r); err != nil {
		return err
	}
	if err := r.save(c.results); err != nil {
		return err
	}
	return r.report(out, f.mutants)
}

// load finds the mutants of packages.
func load(ctx context.Context, patterns []string) (*finder, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	pkgs, err := packages.Load(&packages.Config{Context: ctx, Mode: packages.LoadSyntax | packages.NeedModule, Env: environment()}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	f := &finder{root: root, alike: map[string]int{}}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("load %s: %w", p.PkgPath, e)
		}
		if err := f.find(p, os.ReadFile); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// prepare compiles the tests and finds out what each of them reaches.
func (b *bench) prepare(ctx context.Context, f *finder, packages []string) ([]test, error) {
	began := time.Now()
	programs, err := build(ctx, b.work, f.sources, packages)
	if err != nil {
		return nil, err
	}
	b.log("%d mutants in %d programs, compiled in %v", len(f.mutants), len(programs), time.Since(began).Round(time.Second))
	began = time.Now()
	var tests []test
	for _, p := range programs {
		of, err := b.trace(ctx, p)
		if err != nil {
			return nil, err
		}
		tests = append(tests, of...)
	}
	b.log("%d tests, looked at in %v", len(tests), time.Since(began).Round(time.Second))
	return tests, nil
}

// runAll runs mutants, as many at once as there are processors, until the budget is spent.
func (b *bench) runAll(ctx context.Context, c config, mutants []mutant, tests []test, r *results) error {
	order := make(chan mutant)
	go func() {
		defer close(order)
		h := fnv.New64a()
		_, _ = h.Write([]byte(c.seed)) // never fails
		until := time.Now().Add(c.budget)
		for _, i := range rand.New(rand.NewPCG(h.Sum64(), 0)).Perm(len(mutants)) {
			if ctx.Err() != nil || c.budget > 0 && time.Now().After(until) {
				return
			}
			order <- mutants[i]
		}
	}()
	var workers sync.WaitGroup
	errs := make(chan error, runtime.NumCPU())
	for range runtime.NumCPU() {
		workers.Go(func() {
			for m := range order {
				killer, err := b.judge(ctx, m, tests, r.killer(m))
				if err != nil {
					errs <- err
					break
				}
				r.add(m, killer)
			}
			for range order { // after an error nothing more is run
			}
		})
	}
	workers.Wait()
	close(errs)
	return <-errs
}
