package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// profile says where size and time go.
func (b *bench) profile() error {
	for _, part := range []func() error{b.profileFloor, b.profileSections, b.profilePackages, b.profileStart, b.profileInit} {
		if err := part(); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	return nil
}

// profileFloor measures what remains if everything of our own is taken away.
func (b *bench) profileFloor() error {
	b.out.section("The floor: a program that has pflag and mount-utils in it and answers init with a constant")
	floor, err := b.node.floor(b.ctx)
	if err != nil {
		return err
	}
	init := func() (cost, error) { return floor.call("init") }
	pairs, err := b.compare(300, init, func() (cost, error) { return b.node.empty.call() })
	if err != nil {
		return err
	}
	m, err := floor.peak("init")
	if err != nil {
		return err
	}
	file, err := os.Stat(floor.path)
	if err != nil {
		return err
	}
	b.out.line("init %.2fx wall, %.2fx CPU; peak memory %.2f MiB; stripped binary %.2f MiB",
		ratio(pairs, wall).value, ratio(pairs, cpu).value, mib(m.peak), mib(file.Size()))
	return nil
}

func (b *bench) profileSections() error {
	b.out.section("Where the size goes: sections of the file, against the empty program")
	driver, err := sections(b.node.stripped)
	if err != nil {
		return err
	}
	empty, err := sections(b.node.empty.path)
	if err != nil {
		return err
	}
	for _, name := range largest(driver, 5) {
		b.out.line("%-14s %9d %9d", name, driver[name], empty[name])
	}
	return nil
}

func sections(path string) (map[string]int, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sizes := map[string]int{}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOBITS {
			sizes[s.Name] = int(s.Size)
		}
	}
	return sizes, nil
}

// profilePackages adds up the symbols of each package. In the file each byte of
// code brings most of another one of tables, for stack traces and the garbage
// collector.
func (b *bench) profilePackages() error {
	b.out.section("Where the size goes: code and data by package, against the empty program")
	driver, err := packages(b.node.driverSymbols)
	if err != nil {
		return err
	}
	empty, err := packages(b.node.emptySymbols)
	if err != nil {
		return err
	}
	for _, name := range largest(driver, 28) {
		b.out.line("%-58s %8d %8d", name, driver[name], empty[name])
	}
	return nil
}

func packages(path string) (map[string]int, error) {
	out, err := exec.Command("go", "tool", "nm", "-size", path).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool nm %s: %w", path, err)
	}
	sizes := map[string]int{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line) // address, size, kind, name
		if len(fields) < 4 || !slices.Contains([]string{"T", "t", "R", "r", "D", "d"}, fields[2]) {
			continue
		}
		if size, err := strconv.Atoi(fields[1]); err == nil {
			sizes[packageOf(fields[3])] += size
		}
	}
	return sizes, nil
}

// packageOf takes a symbol's package off its name, such as
// path/to/pkg.(*Type).Method or slices.Sort[go.shape.…].
func packageOf(symbol string) string {
	symbol, _, _ = strings.Cut(symbol, "[")
	symbol = strings.TrimLeft(strings.TrimPrefix(symbol, "type:.eq."), "*")
	dir := strings.LastIndexByte(symbol, '/') + 1
	name, _, found := strings.Cut(symbol[dir:], ".")
	if !found || strings.ContainsAny(name, ":(") {
		return "(other)"
	}
	return symbol[:dir] + name
}

// largest returns the keys with the largest values, and the keys only.
func largest(sizes map[string]int, most int) []string {
	names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), strings.Compare(a, b))
	})
	return names[:min(most, len(names))]
}

// profileStart tells the parts of a start.
func (b *bench) profileStart() error {
	b.out.section("Where the time goes: init, against the empty program")
	pairs, err := b.compare(200,
		func() (cost, error) { return b.node.driver.call("init") },
		func() (cost, error) { return b.node.empty.call() })
	if err != nil {
		return err
	}
	b.out.line("%-18s %10s %10s", "", "init", "empty")
	b.out.line("%-18s %10s %10s", "wall", milliseconds(typical(pairs, got, wall)), milliseconds(typical(pairs, reference, wall)))
	b.out.line("%-18s %10s %10s", "CPU", milliseconds(typical(pairs, got, cpu)), milliseconds(typical(pairs, reference, cpu)))
	for _, part := range []struct {
		name string
		of   func(cost) float64
	}{
		{"page faults", func(c cost) float64 { return float64(c.faults) }},
		{"context switches", func(c cost) float64 { return float64(c.switches) }},
	} {
		b.out.line("%-18s %10.0f %10.0f", part.name, typical(pairs, got, part.of), typical(pairs, reference, part.of))
	}
	return nil
}

// profileInit shows what package initialisation costs, as the runtime tells it.
func (b *bench) profileInit() error {
	b.out.section("Where the time goes: initialisation of packages (GODEBUG=inittrace=1)")
	cmd := exec.CommandContext(b.ctx, b.node.driver.path, "init")
	cmd.Env = append(slices.Clone(b.node.driver.env), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		return err
	}
	clock, bytes, lines := 0.0, 0, map[string]int{}
	for line := range strings.Lines(trace.String()) {
		var name string
		var at, took float64
		var size, allocations int
		if _, err := fmt.Sscanf(line, "init %s @%g ms, %g ms clock, %d bytes, %d allocs", &name, &at, &took, &size, &allocations); err != nil {
			continue
		}
		clock, bytes = clock+took, bytes+size
		lines[fmt.Sprintf("%-34s %7.3f ms %7d bytes %4d allocations", name, took, size, allocations)] = int(took*1e6) + size
	}
	for _, line := range largest(lines, 10) {
		b.out.line("%s", line)
	}
	b.out.line("%-34s %7.3f ms %7d bytes", "all", clock, bytes)
	return nil
}
