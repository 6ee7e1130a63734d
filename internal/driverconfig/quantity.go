package driverconfig

// This file reads quantities of bytes as Kubernetes writes them. Programs
// that start with every call use it, for which apimachinery is too heavy.

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// ParseQuantity reads a Kubernetes quantity (10Gi, 1.5T, 1e9) as a number of
// bytes, rounded up. The grammar is that of
// k8s.io/apimachinery/pkg/api/resource, which is too heavy for a program that
// starts with every call; the contract tests compare the two. Finer suffixes
// than bytes (m, u, n) are not taken.
func ParseQuantity(s string) (int64, error) {
	end := strings.IndexFunc(s, func(r rune) bool { return r != '+' && r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(s)
	}
	scale, ok := scaleOf(s[end:])
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(s[:end], "+"), ".")
	if !ok || whole+fraction == "" || strings.ContainsAny(whole+fraction, "+.") {
		return 0, fmt.Errorf("%q is no quantity such as 500Mi, 10Gi or 1T", s)
	}
	if fraction = strings.TrimRight(fraction, "0"); len(fraction) > maxDecimals {
		return 0, fmt.Errorf("%q has too many decimals", s)
	}
	n, ok := scaled(whole, fraction, scale)
	if !ok {
		return 0, fmt.Errorf("%q is too large", s)
	}
	if n == 0 {
		return 0, fmt.Errorf("%q is nothing", s)
	}
	return n, nil
}

// maxDecimals are as many as a 64-bit number can hold.
const maxDecimals = 18

// scaled is whole.fraction times scale, rounded up.
func scaled(whole, fraction string, scale uint64) (int64, bool) {
	w, err := strconv.ParseUint("0"+whole, 10, 64)
	if err != nil {
		return 0, false
	}
	high, n := bits.Mul64(w, scale)
	if high != 0 {
		return 0, false
	}
	if len(fraction) > 0 {
		f, err := strconv.ParseUint(fraction, 10, 64)
		if err != nil {
			return 0, false
		}
		tenth := power(10, len(fraction))
		high, low := bits.Mul64(f, scale)
		part, rest := bits.Div64(high, low, tenth) // high < tenth, as f < tenth
		if rest > 0 {
			part++
		}
		var carry uint64
		if n, carry = bits.Add64(n, part, 0); carry != 0 {
			return 0, false
		}
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// scaleOf returns what a suffix stands for.
func scaleOf(suffix string) (uint64, bool) {
	if suffix == "" {
		return 1, true
	}
	if i := strings.Index("KiMiGiTiPiEi", suffix); len(suffix) == 2 && i >= 0 && i%2 == 0 {
		return power(1024, i/2+1), true
	}
	if i := strings.Index("kMGTPE", suffix); len(suffix) == 1 && i >= 0 {
		return power(1000, i+1), true
	}
	exponent, err := strconv.ParseUint(strings.TrimPrefix(suffix[1:], "+"), 10, 8)
	if (suffix[0] != 'e' && suffix[0] != 'E') || err != nil || exponent > 18 {
		return 0, false
	}
	return power(10, int(exponent)), true
}

func power(base uint64, exponent int) uint64 {
	n := uint64(1)
	for range exponent {
		n *= base
	}
	return n
}
