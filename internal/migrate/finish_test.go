package migrate_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
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
	for file, view := range map[string]report.View{"testdata/finish.txt": report.Table, "testdata/finish-wide.txt": report.Wide} {
		var b bytes.Buffer
		if err := d.Show(view).Write(&b, view); err != nil {
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

// TestFinishPassing: finish waits if time is all that is needed.
func TestFinishPassing(t *testing.T) {
	end := func(passing ...bool) (e migrate.End) {
		for _, p := range passing {
			e.Obstacles = append(e.Obstacles, migrate.Obstacle{Passing: p})
		}
		return e
	}
	driver := func(e migrate.End, nodes ...migrate.End) (d migrate.DriverEnd) {
		d.End = e
		for _, n := range nodes {
			d.Nodes = append(d.Nodes, migrate.NodeEnd{End: n})
		}
		return d
	}
	for name, test := range map[string]struct {
		report migrate.FinishReport
		want   bool
	}{
		"free":                    {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(), end())}}, false},
		"a mount of a gone pod":   {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(), end(true)), driver(end())}, Bridge: end(false)}, true},
		"of a living one as well": {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(), end(true, false))}}, false},
		"on another node":         {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(), end(true), end(false))}}, false},
		"a PersistentVolume":      {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(false), end(true))}}, false},
		"what is not known":       {migrate.FinishReport{Drivers: []migrate.DriverEnd{driver(end(), end(true))}, Problems: []string{"p"}}, false},
	} {
		if got := test.report.Passing(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFinishGonePod: a node has not told yet that the pods of its mounts are gone, one of
// which is just ending.
func TestFinishGonePod(t *testing.T) {
	d := bridgestatus.NodeVolumesOf("node-1", "boot", "v1", time.Now(), nil, nil)
	d.Volumes = []bridgestatus.NodeVolume{{
		PersistentVolume: "pv1", FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", VolumeHandle: "vol-1", TakenOver: true,
		Pods: []bridgestatus.NodePod{{UID: "gone", TakenOver: true}, {UID: "ending", TakenOver: true}, {UID: "over", TakenOver: true}},
	}}
	text, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot"}}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: bridgestatus.Namespace, Name: "node-1", Labels: map[string]string{bridgestatus.Label: "true"}}, Data: map[string]string{bridgestatus.Key: text}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "old", UID: "ending", DeletionTimestamp: &metav1.Time{Time: time.Unix(0, 0)}, Finalizers: []string{"x/y"}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "job", UID: "over"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
	)
	o := &migrate.Observer{Client: a.client(), Journal: journal.New(a.client(), migrate.Namespace, ""), Now: time.Now}
	found, err := o.Finish(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := found.Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	if !found.Passing() || found.Free(false) || !strings.Contains(b.String(), "FlexVolume driver example.com/disk: IS NEEDED STILL on nodes\n") ||
		!strings.Contains(b.String(), "pods that are ending or gone, and have a mount of the bridge (3): uid gone, volume pv1; pod shop/old, volume pv1; pod shop/job, volume pv1") {
		t.Errorf("passing %v, free %v, problems %q:\n%s", found.Passing(), found.Free(false), found.Problems, b.String())
	}
}

// TestFinishClasses: a StorageClass that makes FlexVolumes, of which assess --fail-on fails, was a
// note of finish.
func TestFinishClasses(t *testing.T) {
	const original = `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"example.com/provisioner"}},"spec":{"flexVolume":{"driver":"example.com/disk"}}}`
	done := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "done", Annotations: map[string]string{migrate.FlexDriverAnnotation: "example.com/disk", migrate.OriginalAnnotation: original}},
		Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com", VolumeHandle: "h"}}},
	}
	a := newAPI(t,
		done,
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/provisioner"},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "block"}, Provisioner: "ceph.rook.io/block"}, // never had a volume
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast-csi"}, Provisioner: "disk.csi.example.com"},
	)
	o := &migrate.Observer{Client: a.client(), Journal: journal.New(a.client(), migrate.Namespace, ""), Now: time.Now}
	for _, test := range []struct {
		drivers []string
		want    []string
	}{
		{nil, []string{"block (provisioner ceph.rook.io/block)", "fast (provisioner example.com/provisioner)"}},
		{[]string{"example.com/disk"}, []string{"fast (provisioner example.com/provisioner)"}},
	} {
		d, err := o.Finish(t.Context(), test.drivers)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, driver := range d.Drivers {
			for _, o := range driver.Obstacles {
				got = append(got, o.Objects...)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" || len(d.Problems) > 0 || d.Free(true) {
			t.Errorf("%q: %s\n%q", test.drivers, diff, d.Problems)
		}
	}
}
