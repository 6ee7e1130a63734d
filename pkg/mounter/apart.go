package mounter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// CheckApart refuses a root that shows what is below another one, or is shown there,
// whatever links and bind mounts lead to them. A root that does not exist shows nothing.
func CheckApart(root string, others []string) error {
	table, err := Mounts(nil)
	if err != nil {
		return err
	}
	own, err := locationsOf(root, table)
	if err != nil || own == nil {
		return err
	}
	for _, other := range others {
		places, err := locationsOf(other, table)
		if err != nil {
			return err
		}
		for _, p := range places {
			if slices.ContainsFunc(own, p.nested) {
				return &Error{Op: "compare roots", Source: root, Err: because(ErrUnsafePath, "it and the root %s are not apart: one shows what is below the other; name another directory for one of them", other)}
			}
		}
	}
	return nil
}

// A location is a directory of a filesystem, or, without a filesystem, a path.
type location struct{ filesystem, path string }

func (p location) nested(q location) bool {
	return p.filesystem == q.filesystem && (below(p.path, q.path) || below(q.path, p.path))
}

// locationsOf returns what can be seen at a directory: its own place, and those that are
// mounted below it.
func locationsOf(dir string, table []*Info) ([]location, error) {
	f, err := openRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd := strconv.Itoa(int(f.Fd()))
	path, err := os.Readlink("/proc/self/fd/" + fd)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/fdinfo/" + fd)
	if err != nil {
		return nil, err
	}
	mount, _ := parseFDInfo(string(text))
	places := []location{{"", path}}
	for _, i := range table {
		filesystem := fmt.Sprintf("%d:%d", i.Major, i.Minor)
		if i.ID == mount {
			rel, err := filepath.Rel(i.Mountpoint, path)
			if err != nil {
				return nil, err
			}
			places = append(places, location{filesystem, filepath.Join(i.Root, rel)})
		} else if below(path, i.Mountpoint) {
			places = append(places, location{filesystem, i.Root})
		}
	}
	return places, nil
}
