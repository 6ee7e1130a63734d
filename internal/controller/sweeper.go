package controller

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// A View is the cluster as the sweeper reads it.
type View interface {
	ListAttachments(ctx context.Context, ours bool) ([]storagev1.VolumeAttachment, error)
	ListNodes(ctx context.Context) ([]corev1.Node, error)
	Evidence
}

// A Sweeper deletes VolumeAttachments of flex2csi that no other component deletes. Only
// one controller may run it at a time.
type Sweeper struct {
	View   View
	Delete func(ctx context.Context, a *csivol.Attachment) error
	Log    *slog.Logger
	// DisableForceDetachOnTimeout leaves attachments to nodes that are not ready, as
	// the flag of kube-controller-manager does.
	DisableForceDetachOnTimeout bool
	// Interval between two rounds; zero: a minute.
	Interval time.Duration
	// Now replaces time.Now in tests, which cannot wait for minutes.
	Now func() time.Time

	mu       sync.Mutex
	since    map[stateOf]time.Time // when a state began
	findings []Finding
	looked   time.Time // time of findings; zero: another controller sweeps
	swept    map[AttachmentState]int
}

// A stateOf is a state of an object.
type stateOf struct {
	uid   types.UID
	state AttachmentState
}

const (
	// fullEvery: every tenth round checks the pods of nodes that are alive. Their
	// daemons clean up themselves, and their attachments are only reported.
	fullEvery = 10
	// atOnce bounds the deletions under way: a node may have had hundreds.
	atOnce = 10
	// deleteWait bounds the wait for one deletion.
	deleteWait = time.Minute
)

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(s.Interval, time.Minute))
	defer ticker.Stop()
	defer s.forget()
	for round := 0; ; round++ {
		s.Sweep(ctx, round%fullEvery == 0)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Sweeper) now() time.Time {
	if s.Now == nil {
		return time.Now()
	}
	return s.Now()
}

// forget is called when another controller begins to sweep.
func (s *Sweeper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.since, s.looked = nil, nil, time.Time{}
}

// Sweep runs one round, and deletes what is due. If full is false it does not check the
// pods of nodes that are alive.
func (s *Sweeper) Sweep(ctx context.Context, full bool) {
	findings, err := s.look(ctx, full)
	if err != nil {
		s.Log.Warn("the VolumeAttachments cannot be swept now", "error", err)
		return
	}
	due := s.note(findings, s.now())
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, f := range due {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s.sweep(ctx, f)
		})
	}
	all.Wait()
}

// Look checks all VolumeAttachments of flex2csi.
func Look(ctx context.Context, v View) ([]Finding, error) {
	s := &Sweeper{View: v}
	return s.look(ctx, true)
}

func (s *Sweeper) look(ctx context.Context, full bool) ([]Finding, error) {
	all, err := s.View.ListAttachments(ctx, true)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	nodes, err := s.View.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	// Node by node, so that only the pods of one node are in memory.
	slices.SortFunc(all, func(a, b storagev1.VolumeAttachment) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(objects.AttachmentPersistentVolume(&a), objects.AttachmentPersistentVolume(&b)), cmp.Compare(a.Name, b.Name))
	})
	seen := &seen{Evidence: s.View, nodes: map[string]*corev1.Node{}}
	for i := range nodes {
		seen.nodes[nodes[i].Name] = &nodes[i]
	}
	now, before := s.now(), s.unused()
	findings := make([]Finding, 0, len(all))
	for i := range all {
		a := &all[i]
		n := seen.nodes[a.Spec.NodeName]
		if !full && objects.AttachedBy(a) == objects.AttachedByNode && a.DeletionTimestamp == nil && n != nil && objects.NodeReady(n) && !objects.NodeOutOfService(n) {
			f, ok := before[a.Name]
			if !ok {
				f = Finding{State: InUse, Reason: "its node is there"}
			}
			f.VolumeAttachment = a
			findings = append(findings, f)
			continue
		}
		findings = append(findings, Check(ctx, a, seen, now))
	}
	return findings, nil
}

// unused returns what the last full round found unused on nodes that are alive.
func (s *Sweeper) unused() map[string]Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Finding{}
	for _, f := range s.findings {
		if f.State == Unused {
			all[f.Name] = f
		}
	}
	return all
}

// note stores the findings, and returns those that are due.
func (s *Sweeper) note(findings []Finding, now time.Time) (due []Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := map[stateOf]time.Time{}
	for _, f := range findings {
		wait, act := f.State.grace()
		if !act || f.State == NodeNotReady && s.DisableForceDetachOnTimeout {
			continue
		}
		key := stateOf{f.UID, f.State}
		since[key] = now
		if before, ok := s.since[key]; ok {
			since[key] = before
		}
		if now.Sub(since[key]) >= wait {
			due = append(due, f)
		}
	}
	s.findings, s.since, s.looked = findings, since, now
	return due
}

// sweep deletes an attachment, if a last check returns the same state.
func (s *Sweeper) sweep(ctx context.Context, f Finding) {
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	ctx = volumelog.With(ctx, subject(f.VolumeAttachment))
	log := volumelog.Logger(ctx, s.Log).With("volumeAttachment", f.Name, "node", f.Spec.NodeName)
	if again := Check(ctx, f.VolumeAttachment, s.View, s.now()); again.State != f.State {
		log.Info("left alone", "state", f.State, "now", again.State, "reason", again.Reason)
		return
	}
	log.Info("deleting an unused VolumeAttachment", "state", f.State, "reason", f.Reason, "attachedBy", objects.AttachedBy(f.VolumeAttachment))
	if err := s.Delete(ctx, objects.AttachmentVolume(f.VolumeAttachment)); err != nil {
		log.Warn("the VolumeAttachment is not deleted yet", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept == nil {
		s.swept = map[AttachmentState]int{}
	}
	s.swept[f.State]++
	s.findings = slices.DeleteFunc(slices.Clone(s.findings), func(other Finding) bool { return other.Name == f.Name })
}

// subject returns what a VolumeAttachment tells of its volume.
func subject(a *storagev1.VolumeAttachment) volumelog.Subject {
	return volumelog.Subject{PersistentVolume: objects.AttachmentPersistentVolume(a), CSIDriver: a.Spec.Attacher, VolumeHandle: objects.AttachmentHandle(a)}
}

// A SweepResult has the findings and the deletions of a sweeper.
type SweepResult struct {
	Findings []Finding
	// Looked is the time of the last round; zero: none, or another controller sweeps.
	Looked time.Time
	Swept  map[AttachmentState]int // so far
}

// Result returns the result of the last round.
func (s *Sweeper) Result() SweepResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SweepResult{Findings: slices.Clone(s.findings), Looked: s.looked, Swept: maps.Clone(s.swept)}
}

// seen caches the nodes, and the pods of one node, during a round.
type seen struct {
	Evidence
	nodes map[string]*corev1.Node

	node    string // of pods
	pods    []corev1.Pod
	podsErr error
}

// GetNode returns a node of the list; nil if there is none.
func (s *seen) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return s.nodes[name], nil
}

// PodsOf asks once for each node.
func (s *seen) PodsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	if s.node != node {
		s.node = node
		s.pods, s.podsErr = s.Evidence.PodsOf(ctx, node)
	}
	return s.pods, s.podsErr
}
