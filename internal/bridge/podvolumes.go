package bridge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// podVolumes says where the kubelet's CSI plugin has a volume for pods, as its files
// vol_data.json say. Each operation on a volume asks several times, a node has hundreds of
// pods, and after a power cut all of them start at once. So operations that ask at the same
// time share the answer, and a file is read again only when it has changed.
type podVolumes struct {
	mu   sync.Mutex
	next *podLook // the one that has not begun; nil: nothing waits for one

	looking sync.Mutex              // held by the look that goes on
	read    map[string]volDataState // by path, of the look before
}

// podLook goes through all pods once.
type podLook struct {
	done chan struct{}
	dirs map[csivol.Key][]string
}

// volDataState is what a file said, and what lstat(2) said of it before.
type volDataState struct {
	info os.FileInfo
	key  csivol.Key
}

// same reports whether a file is still as it was.
func (s volDataState) same(info os.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.ModTime().Equal(info.ModTime()) && s.info.Size() == info.Size()
}

// dirs returns the directories of a volume, as they are after the call: what was seen
// before does not count.
func (p *podVolumes) dirs(podsDir string, key csivol.Key) []string {
	p.mu.Lock()
	look, mine := p.next, p.next == nil
	if mine {
		look = &podLook{done: make(chan struct{})}
		p.next = look
	}
	p.mu.Unlock()
	if !mine {
		<-look.done
		return look.dirs[key]
	}
	defer close(look.done)
	p.looking.Lock()
	defer p.looking.Unlock()
	p.mu.Lock()
	p.next = nil
	p.mu.Unlock()
	look.dirs = p.look(podsDir)
	return look.dirs[key]
}

// look finds the volumes of all pods. What it does not find is forgotten.
func (p *podVolumes) look(podsDir string) map[csivol.Key][]string {
	found, read := map[csivol.Key][]string{}, make(map[string]volDataState, len(p.read))
	for _, pod := range names(podsDir) {
		ofPod := csiVolumesOf(podsDir, pod)
		for _, volume := range names(ofPod) {
			dir := ofPod + "/" + volume
			if state, ok := readVolData(dir, p.read[dir]); ok {
				read[dir] = state
				found[state.key] = append(found[state.key], dir)
			}
		}
	}
	p.read = read
	return found
}

// csiVolumesOf has a directory for each CSI volume of a pod.
func csiVolumesOf(podsDir, pod string) string {
	return podsDir + "/" + pod + "/volumes/kubernetes.io~csi" // filepath.Join takes as long as open(2)
}

// readVolData reads the file in a directory of the kubelet's CSI plugin, unless it is as
// it was. The kubelet writes it at once.
func readVolData(dir string, before volDataState) (volDataState, bool) {
	file := filepath.Join(dir, volDataFile)
	info, err := os.Lstat(file)
	if err != nil {
		return volDataState{}, false
	}
	if before.same(info) {
		return before, true
	}
	var data struct{ DriverName, VolumeHandle string }
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &data) != nil {
		return volDataState{}, false
	}
	return volDataState{info, csivol.Key{Driver: data.DriverName, Handle: data.VolumeHandle}}, true
}

// names lists a directory, which most pods do not have: one system call then, and no
// look at each entry (filepath.Glob makes twelve for each pod).
func names(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	all, _ := d.Readdirnames(-1)
	return all
}
