package migrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// BenchmarkPlan plans shops on a hundred nodes, a hundred of them in a namespace. The time
// for each volume does not grow with their number.
func BenchmarkPlan(b *testing.B) {
	config, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("volumes=%d", n), func(b *testing.B) {
			client := &objects.Client{Dynamic: fake.NewSimpleDynamicClient(scheme.Scheme, shops(n, 100)...)}
			for b.Loop() {
				p := &migrate.Planner{Client: client, Config: config, Now: time.Now, WithoutDryRun: true}
				plan, err := p.Plan(context.Background(), &migrate.Selection{All: true})
				if err != nil || len(plan.Volumes) != n || plan.Volumes[n-1].Handle == "" {
					b.Fatal(err, len(plan.Volumes))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/volume")
		})
	}
}

// shops are n of the volume of shop, each with its claim, pod and VolumeAttachment, on some nodes.
func shops(n, nodes int) []runtime.Object {
	all := map[string]runtime.Object{}
	for i := range n {
		node, namespace, handle := fmt.Sprintf("node-%d", i%nodes), fmt.Sprintf("shop-%d", i/100), fmt.Sprintf("vol-%d", i)
		pod := podOf()
		for _, o := range shop(pod) {
			switch o := o.(type) {
			case *corev1.PersistentVolume:
				o.Name, o.UID = fmt.Sprintf("pv-%d", i), types.UID(handle)
				o.Spec.ClaimRef.Namespace, o.Spec.ClaimRef.Name = namespace, fmt.Sprintf("orders-%d", i)
				o.Spec.FlexVolume.Options["volumeID"] = handle
			case *corev1.PersistentVolumeClaim:
				o.Namespace, o.Name, o.Spec.VolumeName = namespace, fmt.Sprintf("orders-%d", i), fmt.Sprintf("pv-%d", i)
			case *corev1.Pod:
				o.Namespace, o.Name, o.Spec.NodeName = namespace, fmt.Sprintf("orders-%d-0", i), node
				o.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = fmt.Sprintf("orders-%d", i)
			case *corev1.Node:
				o.Name = node
			case *storagev1.CSINode:
				o.Name = node
			case *storagev1.VolumeAttachment:
				o.Name, o.Spec.NodeName = objects.AttachmentName(handle, "disk.csi.example.com", node), node
				o.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = handle
			}
			m := o.(interface {
				GetNamespace() string
				GetName() string
			})
			all[fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())] = o
		}
		for _, name := range []string{node, fmt.Sprintf("node-%d", (i+1)%nodes)} {
			if o, ok := all[fmt.Sprintf("%T /%s", &corev1.Node{}, name)].(*corev1.Node); ok {
				o.Status.VolumesAttached = append(o.Status.VolumesAttached, corev1.AttachedVolume{Name: objects.CSIVolumeName("disk.csi.example.com", handle)})
			}
		}
	}
	var list []runtime.Object
	for _, o := range all {
		list = append(list, o)
	}
	return list
}
