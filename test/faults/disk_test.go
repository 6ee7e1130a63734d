package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// strikeDisk leaves no room where the state is kept.
func (w *world) strikeDisk(r *rand.Rand) error {
	name := filepath.Join(w.stateDir(), "filler")
	f, err := os.Create(name)
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	if err == nil {
		var zero *os.File
		if zero, err = os.Open("/dev/zero"); err != nil {
			return err
		}
		defer zero.Close()
		_, err = io.CopyN(f, zero, 1<<30)
		f.Close()
		if !errors.Is(err, unix.ENOSPC) {
			return fmt.Errorf("the disk does not fill: %w", err)
		}
	}
	time.Sleep(50*time.Millisecond + upTo(r, 300*time.Millisecond))
	return os.Remove(name)
}

// strikeFiles puts files there that the daemon has not written, or not to
// the end, while it is down.
func (w *world) strikeFiles(r *rand.Rand) error {
	return interrupt(w.daemon, unix.SIGKILL, func() error {
		garbage := garbage(r)
		files := map[string][]byte{
			"garbage.json": garbage, "empty.json": nil, "other.json": []byte(`{"version":1,"csiDriver":"a","volumeHandle":"b"}`),
			".torn.json123": garbage, "garbage.pending-unmount.json": garbage,
		}
		records, err := w.records()
		if err != nil {
			return err
		}
		if len(records) > 0 {
			name := records[r.IntN(len(records))]
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			// What a write that was cut short leaves: the record itself is whole.
			files["."+filepath.Base(name)+"999"] = data[:r.IntN(len(data)+1)]
			files["copy-of-"+filepath.Base(name)] = data
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(w.stateDir(), name), data, 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
				return err
			}
		}
		return nil
	})
}

// strikeRecord spoils one of the records: it is empty, cut off or garbage.
func (w *world) strikeRecord(r *rand.Rand) error {
	return interrupt(w.daemon, unix.SIGKILL, func() error {
		names, err := w.records()
		// The first version of a record has none before it. One that is spoilt stays so: a
		// daemon that was killed at its start has not put it aside yet.
		names = slices.DeleteFunc(names, func(name string) bool { return !exists(name+"~") || !whole(name) })
		if err != nil || len(names) == 0 {
			return err
		}
		name := names[r.IntN(len(names))]
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := w.loseTargets(name); err != nil {
			return err
		}
		data = data[:r.IntN(len(data))]
		if r.IntN(3) == 0 {
			data = garbage(r)
		}
		w.history.add("spoilt " + name)
		// Removed first: the version before may be the same file.
		return errors.Join(os.Remove(name), os.WriteFile(name, data, 0o600))
	})
}

// loseTargets notes the targets that are only in the last version of a record, without a
// target path of their own, and not mounted.
func (w *world) loseTargets(name string) error {
	last, err := readRecord(name)
	if err != nil {
		return err
	}
	before, err := readRecord(name + "~")
	if err != nil {
		return err
	}
	for dir, t := range last.Targets {
		if _, known := before.Targets[dir]; !known && t.TargetPath == "" && !isMount(dir) {
			w.history.lose(last.Handle, dir)
		}
	}
	return nil
}

func readRecord(name string) (*volstate.Record, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(volstate.Record)
	return r, json.Unmarshal(data, r)
}

// whole reports whether a record can be read.
func whole(name string) bool {
	_, err := readRecord(name)
	return err == nil
}

func garbage(r *rand.Rand) []byte {
	data := make([]byte, r.IntN(300))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// strikeClock makes all records hours older, or newer.
func (w *world) strikeClock(r *rand.Rand) error {
	by := time.Duration(1+r.IntN(100)) * time.Hour
	if r.IntN(2) == 0 {
		by = -by
	}
	w.history.add(fmt.Sprintf("records are %v newer", by))
	return interrupt(w.daemon, unix.SIGKILL, func() error {
		names, err := w.records()
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := shift(name, by); err != nil {
				return err
			}
		}
		return nil
	})
}

func shift(name string, by time.Duration) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var r volstate.Record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil //nolint:nilerr // spoilt, and not read by a daemon since
	}
	r.Changed = r.Changed.Add(by)
	for _, t := range r.Targets {
		t.Since = t.Since.Add(by)
	}
	if data, err = json.Marshal(&r); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// records returns the paths of all records, which a CSI driver's name begins.
func (w *world) records() ([]string, error) {
	return filepath.Glob(filepath.Join(w.stateDir(), csiName+"*.json"))
}
