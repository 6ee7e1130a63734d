package mounter

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// escape is what the kernel does to paths in the table (fs/proc_namespace.c,
// mangle).
func escape(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(s)
}

// The table that the kernel writes is read as it was meant, whatever is
// mounted, and of what is stacked the topmost is found.
func FuzzMountinfo(f *testing.F) {
	f.Add("/mnt", "tmpfs", "ext4", uint8(1), "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("/a b\\c#d\n", "//server/my share", "fuse.sshfs", uint8(5), "")
	f.Add("/mnt", "", "", uint8(0), "36 35 98:0 / / - - - - - - - -\n")
	f.Add("/mnt", "x", "y", uint8(2), "1 2 3 / /mnt rw - a b\n")
	f.Add("/mnt", "none", "nfs4", uint8(3), "a b c \\0 \\777 - - - - -\n\n")
	f.Fuzz(func(t *testing.T, point, source, fsType string, stacked uint8, rest string) {
		// Anything at all: an error, but no panic.
		if infos, err := mountinfo.GetMountsFromReader(strings.NewReader(rest), nil); err == nil {
			_ = topOf(infos)
			for _, i := range infos {
				_ = Describe(i)
			}
		}
		if strings.ContainsAny(point+source+fsType, "\x00\r") || len(point+source+fsType) > 10000 {
			return
		}
		n := int(stacked%6) + 1
		var table strings.Builder
		for i := n - 1; i >= 0; i-- { // not in the order in which they are stacked
			fmt.Fprintf(&table, "%d %d 0:%d / %s rw,relatime - %s %s rw\n", 100+i, 99+i, i, escape(point), escape(fsType), escape(source))
		}
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(table.String()), nil)
		if err != nil || len(infos) != n {
			t.Fatalf("%d entries of %d, %v\n%s", len(infos), n, err, table.String())
		}
		top := topOf(infos)
		if top == nil || top.ID != 99+n || top.Mountpoint != point || top.Source != source || top.FSType != fsType {
			t.Errorf("the topmost is %+v\n%s", top, table.String())
		}
	})
}

// Lines are cut off and nothing else, wherever a reader stops.
func FuzzShortLines(f *testing.F) {
	f.Add("one\ntwo\n", 16, uint8(3))
	f.Add(strings.Repeat("x", 40)+"\nshort\n"+strings.Repeat("y", 16)+"\n", 16, uint8(1))
	f.Add("\n\n no end", 17, uint8(200))
	f.Fuzz(func(t *testing.T, text string, size int, step uint8) {
		size = 16 + size&0xff // the least that bufio has
		r := &shortLines{from: bufio.NewReaderSize(strings.NewReader(text), size)}
		var got strings.Builder
		if _, err := io.CopyBuffer(&got, struct{ io.Reader }{r}, make([]byte, int(step)+1)); err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for line := range strings.Lines(text) {
			body, ended := strings.CutSuffix(line, "\n")
			if len(line) > size {
				body = line[:size]
			}
			want.WriteString(body)
			if ended {
				want.WriteString("\n")
			}
		}
		if got.String() != want.String() {
			t.Errorf("%q, size %d: %q, want %q", text, size, got.String(), want.String())
		}
	})
}
