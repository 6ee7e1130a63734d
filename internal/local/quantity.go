package local

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// ParseQuantity reads a Kubernetes quantity (10Gi, 1.5T, 1e9) as a number of
// bytes, rounded up. The grammar is that of
// k8s.io/apimachinery/pkg/api/resource, which is too heavy for a program that
// starts with every call; the contract tests compare the two.
func ParseQuantity(s string) (int64, error) {
	number, suffix := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("+-.0123456789", r) }); i >= 0 {
		number, suffix = s[:i], s[i:]
	}
	wrong := fmt.Errorf("%q is no quantity such as 500Mi, 10Gi or 1T", s)
	scale, ok := scaleOf(suffix)
	if !ok || strings.ContainsAny(strings.TrimLeft(number, "+"), "+-") || strings.Count(number, "+") > 1 || !strings.ContainsAny(number, "0123456789") {
		return 0, wrong
	}
	value, ok := new(big.Rat).SetString(strings.TrimSuffix(strings.TrimPrefix(number, "+"), "."))
	if !ok {
		return 0, wrong
	}
	value.Mul(value, scale)
	whole, rest := new(big.Int).QuoRem(value.Num(), value.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	if !whole.IsInt64() || whole.Int64() == math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	if whole.Sign() == 0 {
		return 0, fmt.Errorf("%q is nothing", s)
	}
	return whole.Int64(), nil
}

// scaleOf returns what a suffix stands for.
func scaleOf(suffix string) (*big.Rat, bool) {
	pow := func(base, exp int64) *big.Rat {
		return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(base), big.NewInt(exp), nil))
	}
	switch suffix {
	case "":
		return pow(1, 1), true
	case "m":
		return big.NewRat(1, 1000), true
	case "u":
		return big.NewRat(1, 1e6), true
	case "n":
		return big.NewRat(1, 1e9), true
	}
	if i := strings.Index("KiMiGiTiPiEi", suffix); len(suffix) == 2 && i >= 0 && i%2 == 0 {
		return pow(1024, int64(i/2+1)), true
	}
	if i := strings.Index("kMGTPE", suffix); len(suffix) == 1 && i >= 0 {
		return pow(1000, int64(i+1)), true
	}
	return exponent(suffix)
}

// exponent reads e3, E+3, e-3.
func exponent(suffix string) (*big.Rat, bool) {
	digits := strings.TrimLeft(suffix, "eE")
	if len(suffix)-len(digits) != 1 {
		return nil, false
	}
	exp, err := strconv.Atoi(digits)
	if err != nil || exp > 18 || exp < -18 {
		return nil, false
	}
	return new(big.Rat).SetString("1e" + strconv.Itoa(exp))
}
