package csidriver

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes, with Ki, Mi, Gi or Ti behind it or not.
func ParseSize(s string) (int64, error) {
	digits, shift := s, 0
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if d, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = d, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is no size; want bytes, or a number with Ki, Mi, Gi or Ti", s)
	}
	return n << shift, nil
}
