package main

import (
	"context"
	"slices"
	"time"
)

// pair is one round: two things measured right after each other.
type pair struct{ got, reference cost }

// measurement is one way of measuring a cost.
type measurement func() (cost, error)

const (
	leastRounds = 20
	// patience bounds one attempt on a machine that is busy.
	patience = 12 * time.Second
)

// compare is the function compare, with no more rounds than the scale has.
func (b *bench) compare(rounds int, got, reference measurement) ([]pair, error) {
	return compare(b.ctx, min(rounds, b.scale.rounds), got, reference)
}

// compare measures got and reference in turns. On a machine that does other
// things as well only the ratio within a round means something, and only the
// median of many.
func compare(ctx context.Context, rounds int, got, reference measurement) ([]pair, error) {
	pairs := make([]pair, 0, rounds)
	end := time.Now().Add(patience)
	for i := range rounds {
		if i >= leastRounds && time.Now().After(end) {
			break
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var p pair
		first, second := func() (err error) { p.got, err = got(); return err }, func() (err error) { p.reference, err = reference(); return err }
		if i%2 == 1 {
			first, second = second, first
		}
		if err := first(); err != nil {
			return nil, err
		}
		if err := second(); err != nil {
			return nil, err
		}
		if i > 0 { // the first round warms the caches
			pairs = append(pairs, p)
		}
	}
	return pairs, nil
}

// figure is a median with its quartiles, and samples for benchstat.
type figure struct {
	value, low, high float64
	samples          []float64
}

// single is a figure that one measurement gives.
func single(value float64) figure { return figure{value, value, value, nil} }

func (f figure) spread() float64 { return (f.high - f.low) / f.value }

func median(values []float64) figure {
	slices.Sort(values)
	at := func(q float64) float64 { return values[int(q*float64(len(values)-1)+0.5)] }
	return figure{value: at(0.5), low: at(0.25), high: at(0.75)}
}

// wall and cpu choose what of a cost is compared.
func wall(c cost) float64 { return c.wall.Seconds() }
func cpu(c cost) float64  { return c.cpu.Seconds() }

// ratio is got over reference.
func ratio(pairs []pair, of func(cost) float64) figure {
	ratios := make([]float64, len(pairs))
	for i, p := range pairs {
		ratios[i] = of(p.got) / of(p.reference)
	}
	samples := blockMedians(ratios)
	f := median(ratios)
	f.samples = samples
	return f
}

// inverse makes a ratio of times one of rates.
func inverse(pairs []pair) []pair {
	turned := make([]pair, len(pairs))
	for i, p := range pairs {
		turned[i] = pair{got: p.reference, reference: p.got}
	}
	return turned
}

// typical is the median of one side by itself, for people to get an idea.
func typical(pairs []pair, side func(pair) cost, of func(cost) float64) float64 {
	values := make([]float64, len(pairs))
	for i, p := range pairs {
		values[i] = of(side(p))
	}
	return median(values).value
}

func got(p pair) cost       { return p.got }
func reference(p pair) cost { return p.reference }
