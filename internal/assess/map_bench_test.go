package assess_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// BenchmarkReport is flex2csi map of manifests. The time for each volume does not grow with
// their number.
func BenchmarkReport(b *testing.B) {
	c, err := bridgeconfig.Loader{}.Decode([]byte("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: example.com/disk, csiDriver: disk.csi.example.com}\n"), mapping.Check)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 1_000, 10_000} {
		var manifests strings.Builder
		for i := range n {
			fmt.Fprintf(&manifests, "---\nkind: PersistentVolume\nmetadata: {name: pv-%[1]d}\nspec: {claimRef: {namespace: shop-%[2]d, name: data-%[1]d}, flexVolume: {driver: example.com/disk, options: {volumeID: vol-%[1]d}}}\n", i, i/100)
		}
		b.Run(fmt.Sprintf("volumes=%d", n), func(b *testing.B) {
			for b.Loop() {
				in, err := readVolumes(manifests.String())
				if err != nil {
					b.Fatal(err)
				}
				p, err := assess.NewPlanner(c, assess.Node{Cluster: true}, in.CSIDrivers)
				if err != nil {
					b.Fatal(err)
				}
				if r := p.Report(in.Volumes); len(r.Plans) != n || len(r.Bad()) > 0 {
					b.Fatal(len(r.Plans), len(r.Bad()))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/volume")
		})
	}
}
