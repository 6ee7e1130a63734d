package main

import (
	"slices"
	"strings"
	"testing"
)

func TestBlockMedians(t *testing.T) {
	rounds := make([]float64, 0, 40)
	for i := range 40 {
		rounds = append(rounds, float64(i/4*10+i%4)) // 0 1 2 3, 10 11 12 13, …
	}
	if got, want := blockMedians(rounds), []float64{2, 12, 22, 32, 42, 52, 62, 72, 82, 92}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := blockMedians([]float64{3, 1, 2}), []float64{3, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("few rounds: got %v, want %v", got, want)
	}
}

func TestSave(t *testing.T) {
	var b strings.Builder
	for _, r := range []row{
		{what: "init, wall", unit: "x", figure: figure{value: 1.5, samples: []float64{1.25, 1.75}}},
		{what: "stripped binary", unit: " MiB", figure: single(4)},
	} {
		if err := save(&b, r); err != nil {
			t.Fatal(err)
		}
	}
	const want = "BenchmarkInit,_wall 1 1.25 x\nBenchmarkInit,_wall 1 1.75 x\nBenchmarkStripped_binary 1 4 MiB\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
