package migrate_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// moment cuts the connection at a request that fits, before it is done or after.
func (p *operator) moment(verb, resource string, after bool, then func()) {
	p.proxy.At(&controlplane.Moment{
		N: 1, After: after, Then: then,
		Fits: func(r controlplane.Request) bool { return r.Verb == verb && r.Resource == resource && !r.DryRun },
	})
}

// free is a Lease that no other process wants.
type free struct{}

func (free) Held() error { return nil }

// operator migrates, through a proxy that shows what it asks for.
type operator struct {
	*migrate.Runner
	w     *world
	proxy *controlplane.Proxy
	dir   string

	mu     sync.Mutex
	events []migrate.Event
	// when is called with each event.
	when func(migrate.Event)
}

func (w *world) operator(o migrate.Options) *operator {
	w.t.Helper()
	return w.operatorAt(w.t.TempDir()+"/journal", o)
}

// operatorAt has the journal of another one.
func (w *world) operatorAt(dir string, o migrate.Options) *operator {
	w.t.Helper()
	p := &operator{w: w, proxy: w.Proxy(), dir: dir}
	cluster := w.clusterAt(p.proxy)
	planner := w.planner(cluster)
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	p.Runner = &migrate.Runner{
		Client: cluster, Planner: planner, Lease: free{}, Options: o, Now: time.Now, Progress: p.hear,
		Journal: journal.New(cluster, migrate.Namespace, dir),
	}
	return p
}

func (p *operator) hear(e migrate.Event) {
	p.mu.Lock()
	p.events = append(p.events, e)
	when := p.when
	p.mu.Unlock()
	p.w.t.Logf("%s %s %s %s %s %s", e.Volume, e.Direction, e.What, e.Stage, e.Took.Round(time.Millisecond), e.Text)
	if when != nil {
		when(e)
	}
}

// tasks plans volumes, and wants all of them to be chosen.
func (p *operator) tasks(names ...string) []migrate.Task {
	p.w.t.Helper()
	plan, err := p.Planner.Plan(p.w.t.Context(), &migrate.Selection{Names: names})
	p.w.check(err)
	tasks, left := migrate.Choose(plan, p.Options)
	if len(left) > 0 {
		p.w.t.Fatalf("left: %+v", left)
	}
	return tasks
}

// apply migrates volumes and returns what came of them.
func (p *operator) apply(names ...string) []migrate.Result {
	p.w.t.Helper()
	tasks := p.tasks(names...)
	p.proxy.Requests()
	p.proxy.Trace()
	results, err := p.Apply(p.w.t.Context(), tasks)
	p.w.check(err)
	return results
}

func (p *operator) rollback(names ...string) []migrate.Result {
	p.w.t.Helper()
	records, err := p.Reversible(p.w.t.Context(), names)
	p.w.check(err)
	p.proxy.Trace()
	results, err := p.Rollback(p.w.t.Context(), records)
	p.w.check(err)
	return results
}

func (p *operator) resume(names ...string) []migrate.Result {
	p.w.t.Helper()
	records, err := p.Resumable(p.w.t.Context(), names)
	p.w.check(err)
	results, err := p.Resume(p.w.t.Context(), records)
	p.w.check(err)
	return results
}

// changes are the requests that change something, in their order.
func (p *operator) changes() (all []string) {
	for _, r := range p.proxy.Trace() {
		if r.Changes() {
			all = append(all, r.Verb+" "+r.Resource)
		}
	}
	return all
}

// came wants the outcome of a single volume.
func (w *world) came(results []migrate.Result, outcome migrate.Outcome, stage journal.Stage, why string) migrate.Result {
	w.t.Helper()
	if len(results) != 1 || results[0].Outcome != outcome || results[0].Stage != stage || !strings.Contains(results[0].Why, why) {
		w.t.Fatalf("%+v, want %s at %s because of %q", results, outcome, stage, why)
	}
	return results[0]
}

func (w *world) volume(name string) *corev1.PersistentVolume {
	w.t.Helper()
	pv, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	return pv
}

// isCSI wants a volume to be the replacement, bound to the claim as it was.
func (w *world) isCSI(name string, claim types.UID) {
	w.t.Helper()
	pv, c := w.volume(name), w.claim(name)
	if pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != "vol-"+name || pv.Status.Phase != corev1.VolumeBound ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		w.t.Errorf("volume %s: %+v", name, pv)
	}
	w.bound(c, claim)
}

func (w *world) bound(c *corev1.PersistentVolumeClaim, uid types.UID) {
	w.t.Helper()
	if c.UID != uid || c.Status.Phase != corev1.ClaimBound || c.Annotations[migrate.MigratedLabel] != "" {
		w.t.Errorf("claim %s: %+v", c.Name, c)
	}
}

// isFlex wants a volume to be what it was.
func (w *world) isFlex(was *corev1.PersistentVolume, claim types.UID) {
	w.t.Helper()
	now := w.volume(was.Name)
	a, b := comparable(was), comparable(now)
	if a != b {
		w.t.Errorf("volume %s was\n%s\nand is\n%s", was.Name, a, b)
	}
	w.bound(w.claim(was.Name), claim)
}

// comparable is a volume without what each object has of its own.
func comparable(pv *corev1.PersistentVolume) string {
	pv = pv.DeepCopy()
	pv.UID, pv.ResourceVersion, pv.CreationTimestamp, pv.ManagedFields = "", "", metav1.Time{}, nil
	pv.Status.LastPhaseTransitionTime = nil
	if pv.Spec.ClaimRef != nil {
		pv.Spec.ClaimRef.ResourceVersion = ""
	}
	text, err := json.MarshalIndent(pv, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// live makes a disk with a running pod that has it from the bridge.
func (w *world) live(name string) *corev1.Pod {
	w.t.Helper()
	w.disk(name)
	pod := w.pod(name, "node-1", name)
	w.bridge("node-1", has(name, pod))
	w.attached(name, "node-1")
	return pod
}

// document changes what the bridge of a node says of a disk.
func (w *world) document(node, volume string, change func(*bridgestatus.NodeVolume)) {
	w.t.Helper()
	maps := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	o, err := maps.Get(context.Background(), node, metav1.GetOptions{})
	w.check(err)
	d, err := bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
	w.check(err)
	i := slices.IndexFunc(d.Volumes, func(v bridgestatus.NodeVolume) bool { return v.PersistentVolume == volume })
	if i < 0 {
		w.t.Fatalf("the bridge of %s has no %s", node, volume)
	}
	change(&d.Volumes[i])
	text, err := d.Encode()
	w.check(err)
	o.Data[bridgestatus.Key] = text
	_, err = maps.Update(context.Background(), o, metav1.UpdateOptions{})
	w.check(err)
}

// kubelet mounts through its CSI plugin when the run waits for it.
func (w *world) kubelet(node string) func(migrate.Event) {
	return func(e migrate.Event) {
		if e.What == migrate.Waiting && strings.Contains(e.Text, "has not mounted the volume") {
			w.document(node, e.Volume, func(v *bridgestatus.NodeVolume) {
				for i := range v.Pods {
					v.Pods[i].TakenOver = true
				}
			})
		}
	}
}

// unleased is a Lease that no other process wants.
type unleased struct{}

func (unleased) Held() error { return nil }

// journalOf is a runner with a journal in a directory, as a process that begins.
func (w *world) journalOf(c *objects.Client, dir string) *migrate.Runner {
	w.t.Helper()
	return &migrate.Runner{
		Client: c, Planner: w.planner(c), Lease: unleased{}, Now: time.Now, Options: migrate.Options{Timeout: 5 * time.Second},
		Journal: journal.New(c, migrate.Namespace, dir),
	}
}
