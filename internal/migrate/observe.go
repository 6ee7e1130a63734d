package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// An Observer says how the migrations of a cluster are. It only reads.
type Observer struct {
	Client  *objects.Client
	Journal *journal.Journal
	Server  string
	Now     func() time.Time
	// Dead reports whether a process that has the Lease is dead for certain; nil:
	// no process can tell, and the Lease holds until it ends.
	Dead func(process string) bool
}

// LeaseName is the Lease in the namespace of the journal that keeps two operators apart.
const LeaseName = "flex2csi-migrate"

// observed is what was read of a cluster for one answer.
type observed struct {
	w         *world
	home      string // the namespace of flex2csi
	now       time.Time
	volumes   map[string]*volume // all PersistentVolumes
	records   map[string]*journal.Record
	lost      map[string]*journal.LostError // records, by volume
	documents []*bridgestatus.NodeVolumes   // of this boot of their nodes
	bridged   map[csivol.Key][]onNode       // the same by volume
	silent    map[string]string             // nodes with a document that does not count, and why
	problems  []string                      // what could not be looked at
	unread    error                         // what of the journal
}

// onNode is what the bridge of a node has of a volume.
type onNode struct {
	node   string
	volume *bridgestatus.NodeVolume
}

// observe reads what Status and Finish want. What is missing is among the problems, and
// it is not taken for nothing.
func (observer *Observer) observe(ctx context.Context) (*observed, error) {
	s := &observed{w: newWorld(observer.Client, nil), home: observer.Journal.Namespace(), now: observer.Now().UTC(), volumes: map[string]*volume{}, records: map[string]*journal.Record{}, lost: map[string]*journal.LostError{}, bridged: map[csivol.Key][]onNode{}, silent: map[string]string{}}
	all, err := s.w.volumes(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, pv := range all {
		s.volumes[pv.Name] = pv
	}
	records, err := observer.Journal.List(ctx)
	s.unread = err
	if unread, ok := errors.AsType[*journal.UnreadError](err); ok {
		for _, l := range unread.Lost {
			s.lost[l.Record.Volume] = l
		}
		err = errors.Join(unread.Unread...)
	}
	if err != nil {
		s.problem("not all of the journal can be read: %v", err)
	}
	for _, r := range records {
		s.records[r.Volume] = r
	}
	maps, err := s.w.documents(ctx)
	if err != nil {
		s.problem("what the bridges of the nodes have is not known: %v", err)
	}
	for _, m := range maps {
		s.document(ctx, m)
	}
	return s, ctx.Err()
}

func (seen *observed) problem(format string, args ...any) {
	seen.problems = append(seen.problems, fmt.Sprintf(format, args...))
}

// document reads what one node says.
func (seen *observed) document(ctx context.Context, m *corev1.ConfigMap) {
	d, err := bridgestatus.DecodeNodeVolumes(m.Data[bridgestatus.Key])
	if err != nil {
		seen.doubt(m.Name, fmt.Sprintf("ConfigMap %s cannot be read: %v", full(m), err))
		return
	}
	if d.Node != m.Name {
		seen.doubt(m.Name, fmt.Sprintf("ConfigMap %s is that of node %s", full(m), d.Node))
		return
	}
	node, err := get(ctx, seen.w, objects.Nodes(), "", d.Node)
	switch {
	case err != nil:
		seen.doubt(d.Node, fmt.Sprintf("node %s could not be looked at: %v", d.Node, err))
		return
	case node == nil: // its mounts are gone with it
		return
	case !ofThisBoot(d, node):
		seen.doubt(d.Node, fmt.Sprintf("ConfigMap %s is of before node %s was started the last time", full(m), d.Node))
		return
	case d.Incomplete:
		seen.doubt(d.Node, fmt.Sprintf("ConfigMap %s has no room for all volumes of node %s", full(m), d.Node))
	}
	seen.documents = append(seen.documents, d)
	for i := range d.Volumes {
		v := &d.Volumes[i]
		key := csivol.Key{Driver: v.CSIDriver, Handle: v.VolumeHandle}
		seen.bridged[key] = append(seen.bridged[key], onNode{d.Node, v})
	}
}

func (seen *observed) doubt(node, why string) {
	seen.silent[node] = why
	seen.problems = append(seen.problems, why)
}

// An OldMount is one that a pod still has from the bridge, next to the one from
// the kubelet's CSI plugin if that has taken over.
type OldMount struct {
	Node string `json:"node"`
	Pod  string `json:"pod,omitempty"` // namespace/name; empty: the API server knows none of the UID
	UID  string `json:"uid"`
	// TakenOver: the kubelet's CSI plugin has mounted it for the pod, too.
	TakenOver bool `json:"takenOver"`
}

func (m OldMount) String() string {
	return cmp.Or(m.Pod, "a pod that is gone (uid "+m.UID+")") + " on node " + m.Node
}

// mounts are those that bridges have of a volume for pods.
func (seen *observed) mounts(ctx context.Context, driver, handle, namespace string) (all []OldMount) {
	for _, on := range seen.bridged[csivol.Key{Driver: driver, Handle: handle}] {
		for _, p := range on.volume.Pods {
			m := OldMount{Node: on.node, UID: p.UID, TakenOver: on.volume.HasTakenOver(p.UID)}
			if pod := seen.pod(ctx, namespace, p.UID); pod != nil {
				m.Pod = full(pod)
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b OldMount) int { return strings.Compare(a.Pod+"/"+a.UID, b.Pod+"/"+b.UID) })
	return all
}

// pod is the pod with a UID; nil if there is none, or it is not known.
func (seen *observed) pod(ctx context.Context, namespace, uid string) *corev1.Pod {
	pods, _ := seen.w.podsByUID(ctx, namespace)
	return pods[uid]
}

// holder is who has the Lease just now, user@host; empty: no process.
func (observer *Observer) holder(ctx context.Context, s *observed) string {
	object, err := get(ctx, s.w, objects.Leases(), s.home, LeaseName)
	if err != nil {
		s.problem("who migrates just now is not known: %v", err)
		return ""
	}
	if object == nil {
		return ""
	}
	lease := journal.LockViewOf(object)
	if lease.Free(observer.Dead) || lease.Over(s.now) {
		return ""
	}
	return lease.Holder
}

// source is what a PersistentVolume is.
func source(pv *volume) string {
	switch {
	case pv == nil:
		return "none"
	case pv.Spec.FlexVolume != nil:
		return "FlexVolume"
	case pv.Spec.CSI != nil:
		return "CSI"
	}
	return "another"
}

// migrated reports whether there is a PersistentVolume, and it was migrated.
func migrated(pv *volume) bool {
	return pv != nil && pv.Spec.CSI != nil && pv.Labels[MigratedLabel] != ""
}
