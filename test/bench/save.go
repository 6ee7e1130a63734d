package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// blocks is how many samples benchstat gets of a figure.
const blocks = 10

// blockMedians turns rounds into few samples that say as much: the medians of rounds that
// follow each other.
func blockMedians(rounds []float64) []float64 {
	n := min(blocks, len(rounds))
	medians := make([]float64, n)
	for i := range n {
		medians[i] = median(append([]float64(nil), rounds[i*len(rounds)/n:(i+1)*len(rounds)/n]...)).value
	}
	return medians
}

// saveHead writes what the figures are of. benchstat passes over it.
func saveHead(w io.Writer, commit string) error {
	_, err := fmt.Fprintf(w, "# %s on %s, %s\n", commit, time.Now().Format(time.DateOnly), machine())
	return err
}

// save writes a row as Go's benchmarks print theirs, for benchstat.
func save(w io.Writer, r row) error {
	samples := r.figure.samples
	if len(samples) == 0 {
		samples = []float64{r.figure.value}
	}
	name := "Benchmark" + strings.ToUpper(r.what[:1]) + strings.ReplaceAll(r.what[1:], " ", "_")
	for _, sample := range samples {
		if _, err := fmt.Fprintf(w, "%s 1 %.4g %s\n", name, sample, strings.TrimSpace(r.unit)); err != nil {
			return err
		}
	}
	return nil
}
