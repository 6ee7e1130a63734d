package driverconfig

import (
	"math"
	"math/big"
	"strings"
	"testing"
)

// The values are those of resource.Parse and Quantity.Value, which
// test/contract compares with on many more.
func TestParse(t *testing.T) {
	for in, want := range map[string]int64{
		"1":                              1,
		"+1":                             1,
		"1.":                             1,
		"0.5":                            1, // rounded up
		".5Ki":                           512,
		"1.0000":                         1,
		"1.0001":                         2,
		"007":                            7,
		"1k":                             1000,
		"1M":                             1e6,
		"1G":                             1e9,
		"1T":                             1e12,
		"1P":                             1e15,
		"1E":                             1e18,
		"1Ki":                            1 << 10,
		"1Mi":                            1 << 20,
		"10Gi":                           10 << 30,
		"1Ti":                            1 << 40,
		"1Pi":                            1 << 50,
		"7Ei":                            7 << 60,
		"1.5Gi":                          3 << 29,
		"0.1Ki":                          103, // 102.4
		"1e3":                            1000,
		"1E3":                            1000,
		"1e+3":                           1000,
		"1.5e3":                          1500,
		"1e0":                            1,
		"1e18":                           1e18,
		"9.2E":                           9.2e18,
		"9223372036854775807":            math.MaxInt64,
		"7.999999999999999999Ei":         math.MaxInt64, // 8Ei - 1.15 bytes, rounded up
		"0.000000000000000001Ei":         2,             // 1.15
		"1.500000000000000000000000Gi":   3 << 29,
		"000000000000000000000000000001": 1,
	} {
		if got, err := ParseQuantity(in); got != want || err != nil {
			t.Errorf("Parse(%q) = %d, %v, want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "is no quantity", " ": "is no quantity", " 1": "is no quantity", "1 ": "is no quantity", "1 Gi": "is no quantity",
		"Gi": "is no quantity", ".": "is no quantity", "+": "is no quantity", "+.": "is no quantity", "-1": "is no quantity",
		"1..5": "is no quantity", "1.5.5": "is no quantity", "++1": "is no quantity", "1+1": "is no quantity", "1,5": "is no quantity",
		"1e": "is no quantity", "e1": "is no quantity", "1e++1": "is no quantity", "1e-1": "is no quantity", "1e1.5": "is no quantity", "1e19": "is no quantity",
		"1K": "is no quantity", "1ki": "is no quantity", "1mi": "is no quantity", "1gi": "is no quantity", "1GiB": "is no quantity", "1GB": "is no quantity",
		"1iM": "is no quantity", "1iMi": "is no quantity", "1m": "is no quantity", "1u": "is no quantity", "1n": "is no quantity", "0x10": "is no quantity",
		"１Gi": "is no quantity", "1\n": "is no quantity", "1\x00": "is no quantity", "NaN": "is no quantity", "inf": "is no quantity",
		"0": "is nothing", "0Gi": "is nothing", "0.0": "is nothing", "+0e5": "is nothing",
		"8Ei": "is too large", "9223372036854775808": "is too large", "9.3E": "is too large", "18446744073709551615": "is too large",
		"18446744073709551616": "is too large", "18.9E": "is too large", "18446744073709551615.5": "is too large", "16Ei": "is too large", "99999999999999999999": "is too large",
		"10e18":                 "is too large",
		"0.0000000000000000001": "has too many decimals",
	} {
		if got, err := ParseQuantity(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %d, %v, want an error that it %s", in, got, err, want)
		}
	}
}

// What is accepted is what exact arithmetic says.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1.5Gi", "18.9E", "7.999999999999999999Ei", "1e+3", ".5Ki", "0.000000000000000001Ei", "+1.", "18446744073709551615.5", "1E"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseQuantity(s)
		if err != nil {
			if got != 0 {
				t.Errorf("%q: %d with %v", s, got, err)
			}
			return
		}
		if got <= 0 {
			t.Fatalf("%q: %d", s, got)
		}
		number := strings.TrimRight(s, "kKMGTPEi")
		suffix := s[len(number):]
		if number == "" || strings.HasSuffix(number, "e") {
			t.Fatalf("%q was accepted", s)
		}
		exact, ok := new(big.Rat).SetString(strings.ToLower(number))
		if !ok {
			t.Fatalf("%q: %q is no number", s, number)
		}
		if suffix != "" {
			base := int64(1000)
			if strings.HasSuffix(suffix, "i") {
				base = 1024
			}
			for range strings.IndexByte("kmgtpe", strings.ToLower(suffix)[0]) + 1 {
				exact.Mul(exact, new(big.Rat).SetInt64(base))
			}
		}
		// Rounded up: got-1 < exact <= got.
		if exact.Cmp(new(big.Rat).SetInt64(got)) > 0 || exact.Cmp(new(big.Rat).SetInt64(got-1)) <= 0 {
			t.Errorf("%q: %d, exactly %s", s, got, exact.FloatString(3))
		}
	})
}
