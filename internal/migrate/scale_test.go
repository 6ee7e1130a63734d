package migrate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// few are as many volumes as it takes for all feeds to be used.
const few = 11

// TestCostOfVolume: each volume listed all PersistentVolumes, VolumeAttachments, Nodes and pods
// of its namespace, so that 10,000 volumes cost 31 MB each, and apply was killed for its memory.
// What one more volume costs does not depend on the size of the cluster.
func TestCostOfVolume(t *testing.T) {
	const most, requestsMost = 50 << 10, 50
	for _, volumes := range []int{40, 120, 360} {
		t.Run(fmt.Sprintf("volumes=%d", volumes), func(t *testing.T) {
			t.Parallel()
			for range 3 { // on a busy machine waits look more often
				requests, sent := costOf(t, volumes, few)
				requestsMore, sentMore := costOf(t, volumes, 2*few)
				requests, sent = (requestsMore-requests)/few, (sentMore-sent)/few
				t.Logf("one more volume costs %d requests and %d bytes, want at most %d and %d", requests, sent, requestsMost, most)
				if requests <= requestsMost && sent <= most {
					return
				}
			}
			t.Fail()
		})
	}
}

// costOf migrates the first volumes of a cluster, and says what was asked and answered.
func costOf(t *testing.T, volumes, n int) (requests, sent int) {
	c := newShopCluster(t, volumes, volumes/5)
	c.handsOver = 2 * time.Second // a minute, in a real cluster
	for _, result := range c.apply(t, n, func() {}, nil) {
		if result.Outcome != migrate.Done {
			t.Errorf("%+v", result)
		}
	}
	// How often pods are listed goes by when others change, and on a busy machine they are too late.
	return c.total("WATCH pods", "LIST pods")
}

// apply plans the first volumes, and migrates them.
func (c *shopCluster) apply(t *testing.T, n int, planned func(), progress func(migrate.Event)) []migrate.Result {
	t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	go c.bustle(stop, 50*time.Millisecond)
	cluster, err := kube.Connect(kube.Options{Kubeconfig: serveShops(t, c)})
	if err != nil {
		t.Fatal(err)
	}
	config, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	p := &migrate.Planner{Client: cluster.Objects(), Config: config, Now: time.Now}
	if err := p.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("pv-%d", i)
	}
	plan, err := p.Plan(t.Context(), &migrate.Selection{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	options := migrate.Options{Width: n, Timeout: time.Minute, MaxFailures: n}
	tasks, left := migrate.Choose(plan, options)
	if len(tasks) != n {
		t.Fatalf("left: %+v", left)
	}
	planned()
	r := &migrate.Runner{Client: p.Client, Planner: p, Journal: journal.New(p.Client, migrate.Namespace, t.TempDir()), Lease: always{}, Options: options, Progress: progress, Now: time.Now}
	results, err := r.Apply(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// TestFeedBehind: what a watch has not said yet, or no client may watch, does not decide about a
// volume.
func TestFeedBehind(t *testing.T) {
	for name, tt := range map[string]struct {
		resource string
		// change is made once the feeds are there: after the plan, or when pv-0 is deleted.
		change   func(c *shopCluster)
		inWindow bool
		want     migrate.Outcome
		why      string
	}{
		"a VolumeAttachment that is being detached": {
			resource: "volumeattachments", want: migrate.Unfinished, why: "is being deleted",
			change: func(c *shopCluster) {
				c.edit("volumeattachments", "/"+objects.AttachmentName("vol-0", "disk.csi.example.com", "node-0"), func(o *unstructured.Unstructured) {
					o.SetDeletionTimestamp(new(metav1.Now()))
				})
			},
		},
		"a pod on another node": {
			resource: "pods", want: migrate.PutBack, why: "pod shop-0/late has come meanwhile", inWindow: true,
			change: func(c *shopCluster) {
				pod := podOf()
				pod.Namespace, pod.Name, pod.Spec.NodeName = "shop-0", "late", "node-1"
				pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "orders-0"
				c.put("pods", c.object(pod), false)
			},
		},
		"an entry of a vendor's driver": {resource: "nodes", want: migrate.Unfinished, why: byVendor, change: vendorAttaches},
		"no change":                     {resource: "pods", want: migrate.Done, change: func(*shopCluster) {}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			c := newShopCluster(t, 60, 20)
			c.deaf = tt.resource
			change := func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				tt.change(c)
			}
			planned, progress := change, func(migrate.Event) {}
			if tt.inWindow {
				planned, progress = func() {}, func(e migrate.Event) {
					if e.Volume == "pv-0" && e.What == migrate.Reached && e.Stage == journal.Deleting {
						change()
					}
				}
			}
			for _, r := range c.apply(t, few, planned, progress) {
				switch {
				case r.Volume != "pv-0" && r.Outcome != migrate.Done:
					t.Errorf("%+v", r)
				case r.Volume == "pv-0" && (r.Outcome != tt.want || !strings.Contains(r.Why, tt.why)):
					t.Errorf("%+v, want %s: %s", r, tt.want, tt.why)
				}
			}
		})
	}
}

const byVendor = "a vendor's FlexVolume driver in kube-controller-manager has attached it"

// vendorAttaches is an entry of a vendor's driver; it has the lock.
func vendorAttaches(c *shopCluster) {
	c.edit("nodes", "/node-0", func(o *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": string(objects.FlexVolumeName("example.com/disk", "pv-0")), "devicePath": ""}}, "status", "volumesAttached")
	})
}

// TestWatchExpires: that the watch of a node ends is not taken for no entry of a vendor's driver.
func TestWatchExpires(t *testing.T) {
	for _, says := range []bool{true, false} {
		c := newShopCluster(t, 20, 20)
		c.expire = func(to target, name string) (bool, bool) {
			if to.resource.Resource != "nodes" || name != "node-0" {
				return false, false
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			vendorAttaches(c)
			return true, says
		}
		if r := c.apply(t, 1, func() {}, nil)[0]; r.Outcome != migrate.Unfinished || !strings.Contains(r.Why, byVendor) {
			t.Errorf("with an error %t: %+v", says, r)
		}
	}
}

// TestHolderBehind: apply waits for a node that has a volume without pods, also where a watch has
// not said yet that it has it.
func TestHolderBehind(t *testing.T) {
	for _, volumes := range []int{40, 60} { // listed, and asked whether the feed is current
		t.Run(fmt.Sprintf("volumes=%d", volumes), func(t *testing.T) {
			t.Parallel()
			c := newShopCluster(t, volumes, 20)
			c.deaf = "volumeattachments"
			late := c.objects[c.deaf]["/"+objects.AttachmentName("vol-0", "disk.csi.example.com", "node-0")].DeepCopy()
			delete(c.objects[c.deaf], "/"+late.GetName())
			delete(c.objects["pods"], "shop-0/orders-0-0")
			late.SetName(objects.AttachmentName("vol-0", "disk.csi.example.com", "node-1"))
			waited := false
			results := c.apply(t, 1, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.documents["node-0"].Volumes = c.documents["node-0"].Volumes[1:]
				c.put("configmaps", c.object(c.document("node-0")), false)
				c.put(c.deaf, late, false)
			}, func(e migrate.Event) {
				if e.What == migrate.Waiting && strings.Contains(e.Text, "it is still attached to node") && !waited {
					c.mu.Lock()
					defer c.mu.Unlock()
					c.put(c.deaf, late, true)
					waited = true
				}
			})
			if results[0].Outcome != migrate.Done || !waited {
				t.Errorf("waited: %t, %+v", waited, results[0])
			}
		})
	}
}

// TestWithoutWatch: a user who may not watch lists, but not all volumes for each.
func TestWithoutWatch(t *testing.T) {
	for _, resource := range []string{"persistentvolumes", "volumeattachments", "pods"} {
		c := newShopCluster(t, 20, 20)
		c.refused = resource
		for _, r := range c.apply(t, few, func() {}, nil) {
			if r.Outcome != migrate.Done {
				t.Errorf("without a watch of %s: %+v", resource, r)
			}
		}
		if lists := c.asked("LIST persistentvolumes"); lists > 3 { // plan, watch, and instead of that
			t.Errorf("without a watch of %s: %d lists of all PersistentVolumes", resource, lists)
		}
	}
}

// TestTrimPod: sidecars' annotations and volumes are not kept of all pods of a cluster.
func TestTrimPod(t *testing.T) {
	pod := podOf()
	pod.Annotations = map[string]string{"example.com/status": "injected"}
	want := len(pod.Spec.Volumes) + 1
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "token"}, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	if migrate.TrimPod(pod); len(pod.Annotations) > 0 || len(pod.Spec.Volumes) != want {
		t.Errorf("%q, %+v", pod.Annotations, pod.Spec.Volumes)
	}
}
