package sample

import "testing"

func TestNext(t *testing.T) {
	for _, c := range []struct {
		n    int
		last bool
		want Phase
		err  error
	}{
		{-1, true, Begun, errNegative},
		{0, true, Begun, nil},
		{3, true, Begun, nil},
		{4, true, Ended, nil},
		{4, false, Begun, nil},
	} {
		if got, err := Next(c.n, c.last); got != c.want || err != c.err {
			t.Errorf("Next(%d, %t) is %v, %v; want %v, %v", c.n, c.last, got, err, c.want, c.err)
		}
	}
}
