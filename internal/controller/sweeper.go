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

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
)

// A View is the cluster as the sweeper reads it.
type View interface {
	ListAttachments(ctx context.Context, ours bool) ([]storagev1.VolumeAttachment, error)
	ListNodes(ctx context.Context) ([]corev1.Node, error)
	Evidence
}

// A Sweeper deletes VolumeAttachments of ours that nobody else does. One of all
// controllers may do so at a time.
type Sweeper struct {
	View   View
	Delete func(ctx context.Context, a *csivol.Attachment) error
	Log    *slog.Logger
	// DisableForceDetachOnTimeout leaves attachments to nodes that are not ready, as
	// the flag of kube-controller-manager does.
	DisableForceDetachOnTimeout bool
	// Interval between two looks; zero: a minute.
	Interval time.Duration
	// Now replaces time.Now in tests, which cannot wait for minutes.
	Now func() time.Time

	mu       sync.Mutex
	since    map[sentence]time.Time // since when a verdict holds
	findings []Finding
	looked   time.Time // when those were found; zero: another one sweeps
	swept    map[Verdict]int
}

// A sentence is a verdict on an object.
type sentence struct {
	uid     types.UID
	verdict Verdict
}

const (
	// fullEvery says how many rounds look at the pods of nodes that live: these
	// look after themselves, and are only reported.
	fullEvery = 10
	// atOnce bounds the deletions under way: a node may have had hundreds.
	atOnce = 10
	// deleteWait bounds one. What takes longer goes on by itself.
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

// forget: another one sweeps now, and says what it found.
func (s *Sweeper) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.findings, s.since, s.looked = nil, nil, time.Time{}
}

// Sweep looks once and deletes what has been due for its time. Nodes that live
// are looked at closely only if full is true.
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

// Look judges all VolumeAttachments of ours.
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
	// Node by node: so the pods of one at a time are in memory.
	slices.SortFunc(all, func(a, b storagev1.VolumeAttachment) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(attachment.PersistentVolume(&a), attachment.PersistentVolume(&b)), cmp.Compare(a.Name, b.Name))
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
		if !full && attachment.AttachedBy(a) == attachment.AttachedByNode && a.DeletionTimestamp == nil && n != nil && kubeobject.NodeReady(n) && !kubeobject.NodeOutOfService(n) {
			f, ok := before[a.Name]
			if !ok {
				f = Finding{Verdict: InUse, Reason: "its node is there"}
			}
			f.VolumeAttachment = a
			findings = append(findings, f)
			continue
		}
		findings = append(findings, Judge(ctx, a, seen, now))
	}
	return findings, nil
}

// unused are those that the last close look found unused on nodes that live.
func (s *Sweeper) unused() map[string]Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]Finding{}
	for _, f := range s.findings {
		if f.Verdict == Unused {
			all[f.Name] = f
		}
	}
	return all
}

// note remembers what was found, and returns what has been due for its time.
func (s *Sweeper) note(findings []Finding, now time.Time) (due []Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := map[sentence]time.Time{}
	for _, f := range findings {
		wait, act := f.Verdict.grace()
		if !act || f.Verdict == NodeNotReady && s.DisableForceDetachOnTimeout {
			continue
		}
		key := sentence{f.UID, f.Verdict}
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

// sweep deletes one, if a last look says the same.
func (s *Sweeper) sweep(ctx context.Context, f Finding) {
	ctx, cancel := context.WithTimeout(ctx, deleteWait)
	defer cancel()
	log := s.Log.With("volumeAttachment", f.Name, "node", f.Spec.NodeName, "persistentVolume", attachment.PersistentVolume(f.VolumeAttachment), "csiDriver", f.Spec.Attacher, "volumeHandle", attachment.Handle(f.VolumeAttachment))
	if again := Judge(ctx, f.VolumeAttachment, s.View, s.now()); again.Verdict != f.Verdict {
		log.Info("left alone", "verdict", f.Verdict, "now", again.Verdict, "reason", again.Reason)
		return
	}
	log.Info("deleting a VolumeAttachment that nobody uses", "verdict", f.Verdict, "reason", f.Reason, "attachedBy", attachment.AttachedBy(f.VolumeAttachment))
	if err := s.Delete(ctx, attachment.Volume(f.VolumeAttachment)); err != nil {
		log.Warn("the VolumeAttachment is not gone yet", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept == nil {
		s.swept = map[Verdict]int{}
	}
	s.swept[f.Verdict]++
	s.findings = slices.DeleteFunc(slices.Clone(s.findings), func(other Finding) bool { return other.Name == f.Name })
}

// A Result is what a sweeper has seen and done.
type Result struct {
	Findings []Finding
	// Looked is when; zero: never, or another one sweeps now.
	Looked time.Time
	Swept  map[Verdict]int // so far
}

// Result is that of the last look.
func (s *Sweeper) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Result{Findings: slices.Clone(s.findings), Looked: s.looked, Swept: maps.Clone(s.swept)}
}

// seen asks for each thing once in a round that goes node by node.
type seen struct {
	Evidence
	nodes map[string]*corev1.Node

	node    string // that of pods
	pods    []corev1.Pod
	podsErr error
}

// GetNode returns one of the list; nil: there is none.
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
