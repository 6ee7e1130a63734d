package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = "github.com/flex2csi/flex2csi/hack/mutants/testdata/sample"

// TestSample compiles the mutants of a package and runs them: those of a function with a test are
// killed, by that test, and the others live.
func TestSample(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results.json")
	var out strings.Builder
	err := run(t.Context(), &out, config{results: results}, []string{"./testdata/sample"})
	if err == nil || !strings.Contains(err.Error(), "3 mutants survive") {
		t.Errorf("with a function without a test: %v\n%s", err, out.String())
	}
	r, err := readResults(results)
	if err != nil {
		t.Fatal(err)
	}
	name := "testdata/sample/sample.go "
	for _, key := range []string{
		"check always: n < 0", "check never: n < 0", "check by one: n < 0",
		"check swallow: errNegative",
		"Next without: check(n)", "Next always: err != nil", "Next never: err != nil", "Next swallow: err", "Next not: Begun", "Next not: Begun (2)",
		"Next always: n > 3 && last", "Next never: n > 3 && last", "Next without: n > 3", "Next without: last", "Next by one: n > 3",
		"Next not: Ended",
	} {
		if got := r.Killers[name+key]; got != sample+" TestNext" {
			t.Errorf("%s is killed by %q", key, got)
		}
		delete(r.Killers, name+key)
	}
	var left []string
	for key, killer := range r.Killers {
		if killer == "" {
			left = append(left, strings.TrimPrefix(key, name))
		}
	}
	slices.Sort(left)
	want := []string{"Unnoticed by one: i < len(list)", "Unnoticed never: i < len(list)", "Unnoticed without: sum += list[i]"}
	if !slices.Equal(left, want) {
		t.Errorf("these live: %q; want %q", left, want)
	}
}

// Texts that go to one place are nested as the nodes are.
func TestWithPoints(t *testing.T) {
	s := &source{text: []byte("a<b"), insertions: []insertion{
		{offset: 0, end: 0, width: 3, text: "f("},
		{offset: 3, end: 3, width: -3, text: ")"},
		{offset: 0, end: 0, width: 3, text: "g("},
		{offset: 3, end: 3, width: -3, text: "]"},
		{offset: 1, end: 2, text: ","},
		{offset: 0, end: 0, width: 1, text: "h("},
		{offset: 1, end: 1, width: -1, text: "}"},
	}}
	if got := string(s.withPoints()); got != "f(g(h(a},b])" {
		t.Error(got)
	}
}

// What was killed before is tried with its killer first, then the tests of its own package.
func TestRounds(t *testing.T) {
	of := func(pkg, name string, reaches bool) test {
		return test{program: testProgram{pkg: pkg}, name: name, took: 1, reaches: map[int]bool{7: reaches}}
	}
	tests := []test{of("other", "A", true), of("own", "B", true), of("own", "C", false), of("third", "D", true)}
	var got []string
	for _, r := range rounds(mutant{ID: 7, Package: "own"}, tests, "third D") {
		got = append(got, r.program.pkg+" "+strings.Join(r.names, " "))
	}
	if want := []string{"third D", "own B", "other A"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// A line of the lists is a mutant of today.
func TestLists(t *testing.T) {
	lists := []map[string]bool{keys(excusedText), keys(knownText)}
	if len(lists[0])+len(lists[1]) == 0 {
		return
	}
	t.Chdir("../..")
	dirs := map[string]bool{}
	for _, list := range lists {
		for key := range list {
			dirs["./"+filepath.Dir(strings.Fields(key)[0])] = true
		}
	}
	f, err := load(t.Context(), slices.Collect(maps.Keys(dirs)))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.mutants {
		for _, list := range lists {
			delete(list, m.Key)
		}
	}
	for i, name := range []string{"excused.txt", "known.txt"} {
		for key := range lists[i] {
			t.Errorf("%s has a mutant that there is not: %s", name, key)
		}
	}
}
