package kube

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/durable"
)

// volumes are PersistentVolumes as the API server last described them. A file has those
// that are bound FlexVolumes, so that a process that starts while the API server is
// unavailable can tell them from inline volumes.
type volumes struct {
	path string // empty: no file

	mu      sync.Mutex
	seen    map[string]seenVolume
	version int // of the content for the file

	writing sync.Mutex
	written int // version that is in the file; guarded by writing
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
	if !s.seen[name].noted.IsZero() {
		s.version++
	}
	delete(s.seen, name)
	version := s.version
	s.mu.Unlock()
	return s.keep(version)
}

// put stores an answer of the API server. When it returns nil the file has it as well,
// if it is a bound FlexVolume.
func (s *volumes) put(v *csivol.PersistentVolume) error {
	return s.keep(s.note(v, time.Now()))
}

// note returns the version that the file has to have.
func (s *volumes) note(v *csivol.PersistentVolume, now time.Time) int {
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
		noted = time.Time{}
		s.version++
	case wanted && (noted.IsZero() || now.Sub(noted) > volumeNoted || !reflect.DeepEqual(v, old.volume)):
		noted = now
		s.version++
	}
	s.seen[v.Name] = seenVolume{volume: v, when: now, noted: noted, asked: true}
	return s.version
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

// keep returns when the file has a version. Concurrent callers, as after a reboot,
// share one write.
func (s *volumes) keep(version int) error {
	if s.path == "" {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.written >= version {
		return nil
	}
	now, file := s.toKeep()
	data, err := json.Marshal(file)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(s.path, append(data, '\n')); err != nil {
		return err
	}
	s.written = now
	return nil
}

func (s *volumes) toKeep() (version int, file volumesFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file.Version = volumesVersion
	for _, v := range s.seen {
		if !v.noted.IsZero() {
			file.Volumes = append(file.Volumes, keptVolume{v.when, v.volume})
		}
	}
	return s.version, file
}
