package bridge

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/shared"
)

// podVolumes says where the kubelet's CSI plugin has a volume for pods, as its files
// vol_data.json say. Each operation on a volume asks several times, a node has hundreds of
// pods, and after a power cut all of them start at once. So operations that ask at the same
// time share the answer, and a file is read again only when it has changed.
type podVolumes struct {
	answer shared.Answer[map[csivol.Key][]string]
	read   map[string]volDataState // by path, of the look before
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

// dirs returns the directories of a volume.
func (p *podVolumes) dirs(podsDir string, key csivol.Key) []string {
	all, _ := p.answer.Get(context.Background(), func(context.Context) (map[csivol.Key][]string, error) {
		return p.look(podsDir), nil
	})
	return all[key]
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
