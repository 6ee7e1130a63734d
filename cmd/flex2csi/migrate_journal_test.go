package main

import "testing"

// TestOtherCluster: a UID decides where both are known, and the text says what differs.
func TestOtherCluster(t *testing.T) {
	const a, b = "10.0.0.1:443", "10.0.0.2:443"
	for _, test := range []struct {
		its, this journalCluster
		want      string
	}{
		{journalCluster{"1", a}, journalCluster{"1", a}, ""},
		{journalCluster{"1", a}, journalCluster{"1", b}, ""},
		{journalCluster{"1", a}, journalCluster{"", a}, ""},
		{journalCluster{"", a}, journalCluster{"1", a}, ""},
		{journalCluster{"", a}, journalCluster{"", a}, ""},
		{journalCluster{"1", a}, journalCluster{"2", b}, a + ", not " + b},
		{journalCluster{"", a}, journalCluster{"2", b}, a + ", not " + b},
		{journalCluster{"1", a}, journalCluster{"", b}, a + ", not " + b},
		{journalCluster{"1", a}, journalCluster{"2", a}, "at the same address, " + a + ", but its namespace kube-system had the UID 1, and this one's has 2"},
	} {
		if got := test.its.other(test.this); got != test.want {
			t.Errorf("%+v in %+v: %q, not %q", test.its, test.this, got, test.want)
		}
	}
}
