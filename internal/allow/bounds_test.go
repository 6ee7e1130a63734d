package allow

import (
	"fmt"
	"strings"
	"testing"
)

// TestGrammars has, for each kind of value, the last one that is taken and the first one that
// is not.
func TestGrammars(t *testing.T) {
	x := strings.Repeat
	for _, c := range []struct {
		grammar        string
		taken, refused []string
	}{
		{"-", nil, []string{"", "-", "1"}},
		{"[name]", []string{"a"}, []string{"", "["}},
		{"octal", []string{"0", "77777"}, []string{"", "000000", "8", "0o7"}},
		{"name", []string{"a", "0", x("a", 63), "a._-"}, []string{"", x("a", 64), "-a", ".a", "é", "a/b"}},
		{
			"host",
			[]string{"h", "1.2.3.4", "[::1]", "[" + x("a", 45) + "]", x("h", 253), "a-b_c.d"},
			[]string{"", "[", "[]", "[::1", "[x]", "[" + x("a", 46) + "]", x("h", 254), "::1", "a/b"},
		},
		{"hosts", []string{"a", "a:b", x("a:", 511) + "aa"}, []string{"", "a:", x("a:", 512) + "a"}},
		{
			"url",
			[]string{"http://h", "https://h", "https://h:80", "https://[::1]", "https://[::1]:80"},
			[]string{"h", "ftp://h", "https://", "https://:80", "https://h:x", "https://a/b:80", "https://h:", "https://h/p"},
		},
		{
			"context",
			[]string{"u:r:t", "u:r:t:s0", `"u:r:t:s0:c1,c3.c5"`, "u:r:t:s0-s1", "u:r:" + x("t", 251)},
			[]string{"u:r", `u:r:t"`, `"u:r:t`, "u:r:t:0", "u:r:t:s", "u:r:" + x("t", 252), "u:r:t:", "u:r:"},
		},
		{
			"secret",
			[]string{"$(secretFile:a.b_c-d)", "$(secretFile:" + x("k", 253) + ")"},
			[]string{"a)", "$(secretFile:a", "$(secretFile:)", "$(secretFile:" + x("k", 254) + ")", "$(secretFile:a/b)"},
		},
		{"1..300", []string{"1", "300", "0000000000000" + "12"}, []string{"", "0", "301", "1k", "x", "0000000000000" + "123"}},
		{"1..4096", nil, []string{"1k"}},
		{"4k..64k", []string{"4k", "64K", "4096", "65536"}, []string{"4095", "65537", "65k", "4096kk", "k", "1m"}},
		{"0..1099511627775", []string{"1099511627775"}, []string{"1099511627776"}},
		{"0..1023g", []string{"1023g"}, []string{"1024g", "1099511627776"}},
		{"a|b", []string{"a", "b"}, []string{"", "c", "a|b"}},
		{"", nil, []string{"", "a"}},
	} {
		for _, value := range c.taken {
			if !matches(c.grammar, value, true) {
				t.Errorf("%q does not take %q", c.grammar, value)
			}
		}
		for _, value := range c.refused {
			if matches(c.grammar, value, true) {
				t.Errorf("%q takes %q", c.grammar, value)
			}
		}
		if got, want := matches(c.grammar, "", false), c.grammar == "-" || strings.HasPrefix(c.grammar, "["); got != want {
			t.Errorf("%q without a value: %t", c.grammar, got)
		}
	}
}

// TestRangeIsNone: a range that cannot be read takes nothing.
func TestRangeIsNone(t *testing.T) {
	if inRange("x", "3", "2") || inRange("0", "x", "0") {
		t.Error("half a range takes a number")
	}
	if n, ok := size("1023g"); n != 1023<<30 || !ok {
		t.Errorf("1023g is %d, %t", n, ok)
	}
	if _, ok := size("1024g"); ok {
		t.Error("1024g is a size, of more bits than its digits may have")
	}
}

// TestSourceForms has sources that differ from good ones in one thing.
func TestSourceForms(t *testing.T) {
	for _, c := range []struct {
		fsType         string
		taken, refused []string
	}{
		{"nfs", []string{"h:/p", "[::1]:/p", "h:/a b"}, []string{"h", "h:p", "a/b:/p", "h:/p ", "h:/../p", ":/p"}},
		{"cifs", []string{"//h/s", "//h/s/p q"}, []string{"/h/s", "h/s", "//h", "//h/", "//h//s", "//a,b/s", "//h/s/.."}},
		{
			"ceph",
			[]string{"m:/", "m:6789,n:/p", "u@f.fs=/p", "u@.fs=/p"},
			[]string{"m", "m:6789", "u=/p", "@f.fs=/p", "u@=/p", "u@f,s=/p", "u@fs=/a b", "u@fs=/..", "a/b@fs=/p", "m:x:/", "m:/.."},
		},
		{"glusterfs", []string{"s:v", "s:/v", "s,t:v/p"}, []string{"s", "s:", "s:/", "s:..", "a/b:v"}},
		{"lustre", []string{"1.2.3.4@tcp:/fs"}, []string{"1.2.3.4@tcp", "1.2.3.4@tcp:/", "a/b:/fs", "s:/.."}},
		{"virtiofs", []string{"tag"}, []string{"", "-tag", "a/b"}},
		{"fuse.s3fs", []string{"b:/p", strings.Repeat("b", 1024)}, []string{"/p", "a/b:c", "b:/../p", "#b", strings.Repeat("b", 1025)}},
		{"fuse.x", []string{"remote:"}, []string{"remote:/p", "..", "-x"}},
		{"fuse." + strings.Repeat("p", 32), []string{"s"}, nil},
		{"fuse." + strings.Repeat("p", 33), nil, []string{"s"}},
		{"fuse.X", nil, []string{"s"}},
		{"ext4", nil, []string{"s"}},
	} {
		for _, source := range c.taken {
			if fault := Source(c.fsType, source); fault != "" {
				t.Errorf("%s does not take %q: %s", c.fsType, source, fault)
			}
		}
		for _, source := range c.refused {
			if Source(c.fsType, source) == "" {
				t.Errorf("%s takes %q", c.fsType, source)
			}
		}
	}
	if fault := Source("ext4", "s"); !strings.Contains(fault, "ext4 takes nothing") {
		t.Error(fault)
	}
}

// TestListOfEachType: a type takes its own options and no others, by one option that only
// it has.
func TestListOfEachType(t *testing.T) {
	only := map[string]string{"ext": "resgid=0", "xfs": "logbufs=2", "btrfs": "subvolid=5", "nfs": "hard", "cifs": "mfsymlinks", "every": "_netdev", "all": "ro"}
	for fsType, lists := range map[string]string{
		"ext4": "ext every all", "ext3": "ext every all", "xfs": "xfs every all", "btrfs": "btrfs every all", AnyDisk: "ext xfs btrfs every all",
		Directory: "all", "nfs": "nfs every all", "nfs4": "nfs every all", "cifs": "cifs nfs every all", "smb3": "cifs nfs every all",
	} {
		for name, option := range only {
			if got := len(Mount(fsType, []string{option})) == 0; got != strings.Contains(lists, name) {
				t.Errorf("%s takes %s: %t", fsType, option, got)
			}
		}
	}
}

// TestFaultsOfOptions: what an answer repeats of an option, and what it does not.
func TestFaultsOfOptions(t *testing.T) {
	for _, c := range []struct {
		options []string
		want    string // "" is no fault
	}{
		{strings.Fields(strings.Repeat("ro ", 64)), ""},
		{strings.Fields(strings.Repeat("ro ", 65)), "there are 65, and at most 64 are allowed"},
		{[]string{"password=x"}, "password would show in the node's process list"},
		{[]string{"password"}, "not allowed for ext4: password; "},
		{[]string{"other=x"}, "not allowed for ext4: other; "},
		{[]string{strings.Repeat("o", 31)}, ": " + strings.Repeat("o", 31) + "; "},
		{[]string{strings.Repeat("o", 32)}, ": option 1; "},
		{[]string{"ro", "a b"}, ": option 2; "},
		{[]string{"commit=x"}, "the value of commit is not allowed; it takes 0 to 3600"},
	} {
		if got := strings.Join(Mount("ext4", c.options), "; "); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q: %q; want %q", c.options, got, c.want)
		}
	}
}

// TestWhatAllowed: as many names as fit into an event.
func TestWhatAllowed(t *testing.T) {
	var names []string
	for i := range 31 {
		names = append(names, fmt.Sprint("n", i))
	}
	if got := whatAllowed(list(strings.Join(names[:30], " ") + ": -\n")); !strings.HasPrefix(got, "allowed are n0, n1, ") || !strings.HasSuffix(got, "n29 (docs/volumes.md)") {
		t.Error(got)
	}
	if got := whatAllowed(list(strings.Join(names, " ") + ": -\n")); got != "docs/reference/options.md lists what is allowed" {
		t.Error(got)
	}
}
