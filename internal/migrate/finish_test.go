package migrate_test

import (
	"bytes"
	"testing"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestFinishTable: for each driver what it is needed for, and what to type when
// it is not.
func TestFinishTable(t *testing.T) {
	many := []string{"pv1", "pv2", "pv3", "pv4", "pv5", "pv6", "pv7"}
	d := &migrate.FinishReport{
		Drivers: []migrate.DriverEnd{
			{
				FlexDriver: "example.com/disk",
				End:        migrate.End{Obstacles: []migrate.Obstacle{{What: "PersistentVolumes that are FlexVolumes of it", Objects: many, Do: "flex2csi migrate plan --driver example.com/disk"}}},
				Nodes: []migrate.NodeEnd{
					{Node: "node-1", End: migrate.End{Obstacles: []migrate.Obstacle{{What: "pods that have a mount of the bridge", Objects: []string{"pod shop/live-0, volume live"}, Do: "restart them when it suits"}}}},
					{Node: "node-2", End: migrate.End{Free: true}},
				},
			},
			{
				FlexDriver: "example.com/share", End: migrate.End{Free: true, Steps: []string{"take example.com/share out of config.yaml"}},
				Nodes: []migrate.NodeEnd{{Node: "node-1", End: migrate.End{Free: true, Steps: []string{"kubectl -n flex2csi exec flex2csi-node-x -c serve -- /flex2csi uninstall --driver example.com/share"}}}},
			},
		},
		Bridge:   migrate.End{Obstacles: []migrate.Obstacle{{What: "FlexVolume drivers that are still needed", Objects: []string{"example.com/disk"}, Do: "see above"}}},
		Notes:    []migrate.Obstacle{{What: "the journal, which goes with namespace flex2csi", Objects: []string{"2 records"}, Do: "kubectl get keeps it"}},
		Problems: []string{"whether a CronJob makes pods with FlexVolumes is not known: list cronjobs: refused"},
	}
	for file, wide := range map[string]bool{"testdata/finish.txt": false, "testdata/finish-wide.txt": true} {
		var b bytes.Buffer
		if err := d.Table(&b, wide); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.String())
	}
	if d.Free(true) || d.Free(false) {
		t.Error("what is not known is taken for nothing")
	}
	d.Problems, d.Drivers = nil, d.Drivers[1:]
	if !d.Free(true) || d.Free(false) {
		t.Error("a driver can go before the bridge")
	}
}
