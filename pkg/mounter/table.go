package mounter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/moby/sys/mountinfo"
)

// Info is what the mount table says of one mount.
type Info = mountinfo.Info

// topOf returns the one of stacked mounts that none of the others is on. The
// order in the table does not tell: it is that of their making.
func topOf(infos []*Info) *Info {
	covered := map[int]bool{}
	for _, i := range infos {
		covered[i.Parent] = true
	}
	for _, i := range infos {
		if !covered[i.ID] {
			return i
		}
	}
	return nil
}

// Mounts returns the entries of the mount table that the filter keeps, in
// the kernel's order: what is mounted later comes later.
func Mounts(filter mountinfo.FilterFunc) ([]*Info, error) {
	// The table is that of the thread's namespace; see inPrivateNamespace.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return MountsIn("/proc/thread-self/mountinfo", filter)
}

// MountsOf is [Mounts] as another process sees them.
func MountsOf(pid int, filter mountinfo.FilterFunc) ([]*Info, error) {
	return MountsIn(fmt.Sprintf("/proc/%d/mountinfo", pid), filter)
}

// MountsIn is [Mounts] as a file of the form of /proc/self/mountinfo has them.
func MountsIn(file string, filter mountinfo.FilterFunc) ([]*Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(&shortLines{from: bufio.NewReaderSize(f, maxLine)}, filter)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return infos, nil
}

// maxLine is the most that is read of a line. An overlay of many layers has a
// longer one (Linux 6.8, lowerdir+), at which mountinfo's reader would give up
// on the whole table; what is cut off are such options, which come last.
const maxLine = 60 << 10

// shortLines is a reader that cuts lines off.
type shortLines struct {
	from *bufio.Reader
	line []byte // what has not been read yet
}

func (s *shortLines) Read(p []byte) (int, error) {
	if len(s.line) == 0 {
		line, err := s.from.ReadSlice('\n')
		s.line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			if _, err = s.from.ReadSlice('\n'); err == nil {
				s.line = append(s.line, '\n')
			}
		}
		if err != nil && len(s.line) == 0 {
			return 0, err
		}
	}
	n := copy(p, s.line)
	s.line = s.line[n:]
	return n, nil
}

// Describe is one mount in words, for messages.
func Describe(i *Info) string {
	return fmt.Sprintf("%s (%s) on %s", i.Source, i.FSType, i.Mountpoint)
}
