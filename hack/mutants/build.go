package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// withPoints returns the text of a file with its points. No line moves.
func (s *source) withPoints() []byte {
	order := make([]int, len(s.insertions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return inOrder(s.insertions[a], s.insertions[b], a, b) })
	var out bytes.Buffer
	at := 0
	for _, i := range order {
		out.Write(s.text[at:s.insertions[i].offset])
		out.WriteString(s.insertions[i].text)
		at = s.insertions[i].end
	}
	out.Write(s.text[at:])
	return out.Bytes()
}

// inOrder compares insertions: at one place first comes what ends there, the inner before the
// outer, then what replaces a token, then what begins there, the outer before the inner. a and b
// are their numbers: of two around the same node the first is the outer one.
func inOrder(x, y insertion, a, b int) int {
	if c := cmp.Or(cmp.Compare(x.offset, y.offset), cmp.Compare(sign(x.width), sign(y.width))); c != 0 {
		return c
	}
	if x.width < 0 {
		return cmp.Or(-cmp.Compare(x.width, y.width), -cmp.Compare(a, b))
	}
	return cmp.Or(-cmp.Compare(x.width, y.width), cmp.Compare(a, b))
}

func sign(n int) int { return cmp.Compare(n, 0) }

// A testProgram is the compiled test of a package.
type testProgram struct {
	pkg, dir, path string
}

// build compiles the tests of packages with all points, and returns those that have any.
func build(ctx context.Context, work string, sources []*source, tests []string) ([]testProgram, error) {
	overlay := map[string]map[string]string{"Replace": {}}
	for i, s := range sources {
		path := filepath.Join(work, strconv.Itoa(i)+".go")
		if err := os.WriteFile(path, s.withPoints(), 0o600); err != nil {
			return nil, fmt.Errorf("write a file with points: %w", err)
		}
		overlay["Replace"][s.path] = path
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return nil, fmt.Errorf("list the files with points: %w", err)
	}
	list := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return nil, fmt.Errorf("list the files with points: %w", err)
	}
	out, err := output(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, tests...)...)
	if err != nil {
		return nil, err
	}
	var programs []testProgram
	for line := range strings.Lines(out) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		p := testProgram{pkg: pkg, dir: dir, path: filepath.Join(work, strings.ReplaceAll(strings.TrimPrefix(pkg, modulePath), "/", "_")+".test")}
		if _, err := output(ctx, "go", "test", "-c", "-overlay", list, "-o", p.path, pkg); err != nil {
			return nil, err
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// environment is for the go command: what make build has compiled is not compiled once more.
func environment() []string { return append(os.Environ(), "CGO_ENABLED=0") }

// output is what a program prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment()
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, problems.String())
	}
	return string(out), nil
}
