package kube

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// volumes are PersistentVolumes as the API server last described them. A file has those
// that are bound FlexVolumes, so that a process that starts while the API server is
// unavailable can tell them from inline volumes.
type volumes struct {
	path string // empty: no file

	mu      sync.Mutex
	seen    map[string]seenVolume
	changed bool // since the file was written

	writing sync.Mutex
}

type seenVolume struct {
	volume *csivol.PersistentVolume
	when   time.Time // when it was seen last
	noted  time.Time // as in the file; zero: it is not in the file
	asked  bool      // by this process
}

const (
	// maxVolumes bounds the memory.
	maxVolumes = 1024
	// volumeNoted is how old the time in the file may be.
	volumeNoted     = time.Hour
	volumesVersion  = 1
	maxVolumesBytes = 4 << 20
)

// volumesFile has digests of the options, which may have secrets.
type volumesFile struct {
	Version int          `json:"version"`
	Volumes []keptVolume `json:"persistentVolumes"`
}

type keptVolume struct {
	Seen   time.Time                `json:"seen"`
	Volume *csivol.PersistentVolume `json:"persistentVolume"`
}

// read reads the file of an earlier process.
func (s *volumes) read(path string) error {
	s.path, s.seen = path, map[string]seenVolume{}
	var file volumesFile
	if err := readCache(path, maxVolumesBytes, &file); err != nil || file.Version != volumesVersion {
		return err
	}
	now := time.Now()
	for _, k := range file.Volumes {
		// A wrong clock must not extend the time.
		if k.Volume != nil && !k.Seen.After(now) && now.Sub(k.Seen) < volumeKept && len(s.seen) < maxVolumes {
			s.seen[k.Volume.Name] = seenVolume{volume: k.Volume, when: k.Seen, noted: k.Seen}
		}
	}
	return nil
}

func (s *volumes) get(name string) seenVolume {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

// forget removes a volume.
func (s *volumes) forget(name string) error {
	s.mu.Lock()
	s.changed = s.changed || !s.seen[name].noted.IsZero()
	delete(s.seen, name)
	s.mu.Unlock()
	return s.write()
}

// put stores an answer of the API server. When it returns nil the file has it as well,
// if it is a bound FlexVolume.
func (s *volumes) put(v *csivol.PersistentVolume) error {
	s.note(v, time.Now())
	return s.write()
}

func (s *volumes) note(v *csivol.PersistentVolume, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]seenVolume{}
	}
	old, known := s.seen[v.Name]
	if !known && len(s.seen) >= maxVolumes {
		s.dropOldest()
	}
	noted := old.noted
	wanted := v.FlexDriver != "" && v.Claim.UID != "" && !v.Released // others are refused anyway
	switch {
	case !wanted && !noted.IsZero():
		noted, s.changed = time.Time{}, true
	case wanted && (noted.IsZero() || now.Sub(noted) > volumeNoted || !reflect.DeepEqual(v, old.volume)):
		noted, s.changed = now, true
	}
	s.seen[v.Name] = seenVolume{volume: v, when: now, noted: noted, asked: true}
}

func (s *volumes) dropOldest() {
	var oldest string
	for name, v := range s.seen {
		if oldest == "" || v.when.Before(s.seen[oldest].when) {
			oldest = name
		}
	}
	delete(s.seen, oldest)
}

// write returns when the file has all that was noted before. Concurrent callers, as after a
// reboot, share one write.
func (s *volumes) write() error {
	if s.path == "" {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	file := volumesFile{Version: volumesVersion}
	for _, v := range s.seen {
		if !v.noted.IsZero() {
			file.Volumes = append(file.Volumes, keptVolume{v.when, v.volume})
		}
	}
	s.changed = false
	s.mu.Unlock()
	data, err := json.Marshal(file)
	if err == nil {
		err = hostfile.WriteFile(s.path, append(data, '\n'))
	}
	if err != nil {
		s.mu.Lock()
		s.changed = true
		s.mu.Unlock()
	}
	return err
}
