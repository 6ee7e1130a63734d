package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// fuzzTarget is a fuzz function and the directory of its package.
type fuzzTarget struct{ dir, name string }

// fuzz runs every fuzz target below root by itself: go test -fuzz takes one.
func (s *suite) fuzz(ctx context.Context, root string, args []string) error {
	targets, err := findFuzzTargets(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		fmt.Fprintf(s.out, "fuzz %s %s\n", t.dir, t.name)
		errs = append(errs, s.goTest(ctx, append([]string{"-run=^$", "-fuzz=^" + t.name + "$", t.dir}, args...)))
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// findFuzzTargets reads the sources: go test -list would build every test.
func findFuzzTargets(root string) ([]fuzzTarget, error) {
	fuzzFunc := regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)
	var targets []fuzzTarget
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return skipDir(root, name, d)
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range fuzzFunc.FindAllSubmatch(source, -1) {
			dir := "./" + filepath.ToSlash(filepath.Dir(name))
			targets = append(targets, fuzzTarget{dir: dir, name: string(m[1])})
		}
		return nil
	})
	return targets, err
}

// skipDir leaves out what go's ./... leaves out, other modules among it.
func skipDir(root, name string, d fs.DirEntry) error {
	if name == root {
		return nil
	}
	if strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata" || d.Name() == "vendor" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
