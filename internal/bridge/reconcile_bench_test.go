package bridge_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// noState keeps nothing.
type noState struct{}

func (noState) Put(*volstate.Record) error { return nil }
func (noState) Delete(csivol.Key) error    { return nil }

// BenchmarkReconcile looks at volumes of which nothing is amiss, as it does every 30 s.
func BenchmarkReconcile(b *testing.B) {
	const volumes = 2000
	mounts := &fakeMounts{mounted: map[string]bool{}}
	dir := b.TempDir()
	d := newFakeDriver(mounts)
	br := &bridge.Bridge{
		Context: b.Context(), Mounts: mounts, State: noState{}, KubeletDir: dir, NodeName: "node-1", BootID: "boot-1",
		Drivers: bridge.Drivers{All: []*bridge.FlexDriver{{Name: flexDriver, CSIDriver: "csi.example.com", Service: d, Map: mapOptions}}},
	}
	records := make([]*volstate.Record, volumes)
	for i := range records {
		r := &volstate.Record{Version: 1, BootID: "boot-1", FlexDriver: flexDriver, Driver: "csi.example.com", Handle: fmt.Sprint("h", i), Name: fmt.Sprint("pv", i)}
		r.Attach, r.Attachment, r.Stage, r.StageMounted = volstate.Done, "node", volstate.Done, true
		r.StagingPath = br.KubeletStaging(r)
		pod := filepath.Join(dir, "pods", fmt.Sprint("p", i), "volumes/example.com~disk", r.Name)
		private := filepath.Join(dir, "pods", fmt.Sprint("p", i), "flex2csi/volumes/kubernetes.io~csi", r.Name, "mount")
		r.Targets = map[string]*volstate.Target{pod: {TargetPath: private, Publish: volstate.Done, Bound: true, Since: time.Now().Add(-time.Hour)}}
		for _, path := range []string{r.StagingPath, pod, private} {
			mounts.set(path, true)
		}
		records[i] = r
	}
	br.Restore(records)
	b.ReportAllocs()
	for b.Loop() {
		br.Reconcile(b.Context())
	}
	if calls := d.called(); calls != "" {
		b.Errorf("something was amiss: %s", calls)
	}
}
