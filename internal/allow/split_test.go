package allow

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitOptions(t *testing.T) {
	for in, want := range map[string][]string{
		"":                              nil,
		",, ,":                          nil,
		"ro":                            {"ro"},
		"ro,noatime":                    {"ro", "noatime"},
		" ro , noatime,":                {"ro", "noatime"},
		`context="a:b:c:s0:c1,c2",ro`:   {`context="a:b:c:s0:c1,c2"`, "ro"},
		`a="1,2",b="3,4"`:               {`a="1,2"`, `b="3,4"`},
		`a=",,",b`:                      {`a=",,"`, "b"},
		"password=a=b":                  {"password=a=b"},
		"\xff,ä":                        {"\xff", "ä"},
		"a\t,\nb":                       {"a", "b"},
		strings.Repeat("x", 5000) + ",": {strings.Repeat("x", 5000)},
	} {
		got, err := SplitOptions(in)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("SplitOptions(%q): %v (-want +got):\n%s", in, err, diff)
		}
	}
	if got, err := SplitOptions(`ro,a="never closed,b`); err == nil || strings.Contains(err.Error(), "never") {
		t.Errorf("%q, %v, want an error without the text", got, err)
	}
}

func FuzzSplitOptions(f *testing.F) {
	for _, s := range []string{"", "ro,noatime", `context="a:b:s0:c1,c2",ro`, `a="b`, `"",","`, " x , y ", "a==b,=c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := SplitOptions(s)
		if closed := strings.Count(s, `"`)%2 == 0; closed != (err == nil) {
			t.Fatalf("%q: %v", s, err)
		}
		for _, p := range parts {
			if p == "" || p != strings.TrimSpace(p) {
				t.Errorf("%q: part %q", s, p)
			}
			if !strings.Contains(s, p) {
				t.Errorf("%q: part %q is not in it", s, p)
			}
			if bare := strings.Split(p, `"`); strings.Contains(bare[0], ",") {
				t.Errorf("%q: part %q has a comma that no quotes protect", s, p)
			}
		}
		// Joined and split once more, they are the same.
		if again, err := SplitOptions(strings.Join(parts, ",")); !slices.Equal(again, parts) || err != nil {
			t.Errorf("%q: %q, and then %q, %v", s, parts, again, err)
		}
	})
}
