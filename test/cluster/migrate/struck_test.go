package migrate_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/strike"
)

// TestStruck is the table of TestTable (internal/migrate) on a control plane: each request that
// changes something, and each in the window, fails in each way, in each mode. By default it takes
// a sample; FLEX_TABLE=all has all (make table).
//
// Each cell has a volume of its own, and many are under way at the same time. Times are a tenth of
// those of TestTable, but for the API server that is slow, since the program's own deadlines are
// what that is about.
func TestStruck(t *testing.T) {
	w := start(t)
	config, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	w.check(err)
	all, s := os.Getenv("FLEX_TABLE") == "all", w.standins()
	w.bridge("node-1", has("another")) // a driver that no node is seen to stage for is not taken back under a pod
	const width = 32
	shops := make(chan *shop, width)
	for i := range width {
		shops <- s.shop(fmt.Sprintf("shop-%d", i), config)
	}
	cells := w.cells(shops, all)
	var running sync.WaitGroup
	for _, c := range cells {
		p := <-shops
		running.Go(func() {
			defer func() { shops <- p }()
			t.Run(c.name(), func(t *testing.T) { c.strike(w.with(t), p) })
		})
	}
	running.Wait()
	t.Logf("%d cells", len(cells))
}

// cells are those of the table; those that take long are the first.
func (w *world) cells(shops chan *shop, all bool) (cells []cell) {
	w.t.Helper()
	scenes := scenes()
	recorded := make([][]place, len(scenes))
	var running sync.WaitGroup
	for i, s := range scenes {
		p := <-shops
		running.Go(func() {
			defer func() { shops <- p }()
			w.t.Run("record/"+s.name(), func(t *testing.T) { recorded[i] = s.record(w.with(t), p) })
		})
	}
	running.Wait()
	for i, s := range scenes {
		before := len(cells)
		for n, at := range recorded[i] {
			for k, b := range strikes() {
				for l, then := range []string{"resume", "rollback"} {
					if !b.fits(at, then) || !all && !sampled(n, k, l, at.changes) {
						continue
					}
					cells = append(cells, cell{s, b, at, then})
				}
			}
		}
		w.t.Logf("%s: %d requests, %d cells", s.name(), len(recorded[i]), len(cells)-before)
		if len(recorded[i]) < 15 || len(cells)-before < 5 {
			w.t.Errorf("%s: %d cells of %v", s.name(), len(cells)-before, recorded[i])
		}
	}
	slices.SortStableFunc(cells, func(a, b cell) int { return cmp.Compare(b.blow.long(), a.blow.long()) })
	return cells
}

// sampled spreads a sample over all requests and blows.
func sampled(request, blow, then int, changes bool) bool {
	every := 23
	if changes {
		every = 19
	}
	return (request*31+blow*7+then*5)%every == 0
}

// A scene is a command, and the cluster before it.
type scene struct {
	command string
	mode    journal.Mode
	pod     bool
}

func scenes() (all []scene) {
	for _, command := range []string{"apply", "rollback"} {
		for _, mode := range []journal.Mode{journal.Live, journal.Rolling, journal.Offline} {
			all = append(all, scene{command, mode, true})
		}
	}
	return append(all, scene{"apply", journal.Live, false})
}

func (s scene) name() string { return fmt.Sprintf("%s/%s/pod=%t", s.command, s.mode, s.pod) }

// A place is a request of a command: the one that makes the step, or the first of its text after
// it. What changes something makes a step, but a nudge of the claim that is made again.
type place struct {
	step    int
	text    string
	changes bool
}

// places numbers requests.
type places struct {
	step int
	last string
	seen map[place]bool
}

// next is the place of a request; again: it is that of one before.
func (p *places) next(r controlplane.Request) (at place, again bool) {
	text := r.String()
	if r.DryRun {
		text += " (dry run)"
	}
	if r.Changes() && !(text == "patch persistentvolumeclaims" && p.last == text) {
		p.step++
		p.last = text
		return place{p.step, text, true}, false
	}
	at = place{p.step, text, r.Changes()}
	again = p.seen[at] || r.Changes()
	if p.seen == nil {
		p.seen = map[place]bool{}
	}
	p.seen[at] = true
	return at, again
}

// record returns the requests of a command that nothing happens to which change something, and
// those between the deletion of the volume and its claim being bound.
func (s scene) record(w *world, p *shop) (all []place) {
	p.open(w, s)
	defer p.close()
	var mu sync.Mutex
	var numbers places
	window := false
	p.proxy.Meet(func(r controlplane.Request) *controlplane.Fault {
		mu.Lock()
		defer mu.Unlock()
		at, again := numbers.next(r)
		if at.changes {
			window = at.text == "delete persistentvolumes" || window && at.text != "patch persistentvolumeclaims"
		}
		if !again && (at.changes || window) {
			all = append(all, at)
		}
		return nil
	})
	came, err := p.do(w.t.Context(), s.command, s.mode, func() time.Duration { return long }, free{})
	p.proxy.Meet(nil)
	if err != nil || came.Outcome != migrate.Done {
		w.t.Fatalf("%+v, %v", came, err)
	}
	return all
}

const (
	// patience is --timeout of what is struck for longer than that, from then on, since a machine
	// that is busy would end other waits by it. All else has long.
	patience, long = 6 * time.Second, 2 * time.Minute
	forLong        = 2 * patience // of requests that are equal
	forAll         = patience / 2
)

// A blow is one of the list, or one that is late.
type blow struct {
	strike.Blow
	// late is how late the request comes to the API server.
	late time.Duration
}

// strikes are all: those of TestTable, and an API server that is slow.
func strikes() (all []blow) {
	for _, b := range strike.List("a-volume") {
		all = append(all, blow{Blow: b})
	}
	return append(all, blow{strike.Blow{Name: "30 s"}, 30 * time.Second})
}

// fits reports whether the blow makes a cell at a place. A rollback does where the command may have
// ended by the blow, or does not know of an effect: after all others it begins as after one of these.
func (b *blow) fits(at place, then string) bool {
	if then == "rollback" && !b.Kills() && !b.After && b.Again != strike.Equal {
		return false
	}
	return at.changes || b.Reads && then == "resume"
}

// long is about how long it takes.
func (b *blow) long() time.Duration {
	switch b.Again {
	case strike.Equal:
		return forLong
	case strike.All:
		return forAll
	}
	return b.late
}

// fault is what the proxy does to a request.
func (b *blow) fault(kill func()) *controlplane.Fault {
	var said apierrors.APIStatus
	switch {
	case b.late > 0:
		return &controlplane.Fault{Delay: b.late}
	case b.Kills():
		return &controlplane.Fault{After: b.After, Then: kill}
	case errors.As(b.Err, &said):
		return &controlplane.Fault{After: b.After, Code: int(said.Status().Code)}
	case b.Err != nil:
		return &controlplane.Fault{After: b.After}
	}
	return nil
}

// A cell is one of the table: a blow at a request, and what comes after it.
type cell struct {
	scene
	blow blow
	at   place
	then string
}

func (c cell) name() string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprintf("%s/%d-%s/%s/%s", c.scene.name(), c.at.step, strings.ReplaceAll(c.at.text, "/", "-"), c.blow.Name, c.then))
}

// struck is a cell while its command runs.
type struck struct {
	cell
	p    *shop
	kill func()

	mu      sync.Mutex
	numbers places
	since   time.Time // of the blow; zero: it has not come
	killed  bool
}

func (s *struck) hit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.since.IsZero()
}

// Held is the answer of the Lease.
func (s *struck) Held() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() || s.blow.Again == strike.All && time.Since(s.since) > forAll {
		return nil
	}
	return s.blow.Lease
}

// meet decides about a request.
func (s *struck) meet(r controlplane.Request) *controlplane.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, again := s.numbers.next(r)
	first := s.since.IsZero()
	switch {
	case s.killed:
		return &controlplane.Fault{}
	case first && (again || at != s.at):
		return nil
	case first:
		s.since = time.Now()
		s.p.meanwhile(s.blow.Meanwhile)
	case s.blow.Lease != nil || !s.lasts(at):
		return nil
	}
	return s.blow.fault(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killed = true
		s.kill()
	})
}

// lasts reports whether the blow comes to a later request, too.
func (s *struck) lasts(at place) bool {
	switch s.blow.Again {
	case strike.Equal:
		return at.text == s.at.text && time.Since(s.since) <= forLong
	case strike.All:
		return time.Since(s.since) <= forAll
	}
	return false
}

// meanwhile is what another client does.
func (p *shop) meanwhile(what strike.Meanwhile) {
	ctx, core := context.Background(), p.all.w.Admin().CoreV1()
	note := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, touched, time.Now())
	var errs []error
	switch what {
	case strike.Annotates:
		_, err := core.PersistentVolumes().Patch(ctx, p.is.name, types.MergePatchType, note, metav1.PatchOptions{})
		_, errClaim := core.PersistentVolumeClaims(p.name).Patch(ctx, p.is.name, types.MergePatchType, note, metav1.PatchOptions{})
		_, errPod := core.Pods(p.name).Patch(ctx, p.podName(), types.MergePatchType, note, metav1.PatchOptions{})
		_, errNode := core.Nodes().Patch(ctx, p.name, types.MergePatchType, note, metav1.PatchOptions{})
		_, errVA := p.all.w.Admin().StorageV1().VolumeAttachments().Patch(ctx, objects.AttachmentName("vol-"+p.is.name, csiDriver, p.name), types.MergePatchType, note, metav1.PatchOptions{})
		errs = []error{err, errClaim, errPod, errNode, errVA}
	case strike.Releases:
		_, err := core.PersistentVolumes().Patch(ctx, p.is.name, types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{})
		errs = []error{err}
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			p.t.Error(err)
		}
	}
}

// touched is an annotation that another client sets.
const touched = "example.com/touched"

// strike makes the journey of a cell. On a machine that is busy a command may end before the place:
// the control plane has created a VolumeAttachment again, or an error of before was waited for.
func (c cell) strike(w *world, p *shop) {
	for range 3 {
		if c.struck(w, p) || w.t.Failed() {
			return
		}
	}
	w.t.Errorf("there is no %+v", c.at)
}

func (c cell) struck(w *world, p *shop) bool {
	p.open(w, c.scene)
	defer p.close()
	ctx, kill := context.WithCancel(w.t.Context())
	defer kill()
	s := &struck{cell: c, p: p, kill: kill}
	p.proxy.Meet(s.meet)
	came, err := p.do(ctx, c.command, c.mode, s.patience, s)
	p.proxy.Meet(nil)
	p.safe()
	p.honest(c.command, came, err, ctx.Err() != nil)
	if !s.hit() && !w.t.Failed() {
		w.t.Logf("there is no %+v: it came to %+v (%v)", c.at, came, err)
		return false
	}
	second, secondErr := p.continues(c.then, c.mode)
	p.ends(c.then, c.blow.Meanwhile == strike.Releases)
	p.left(c.scene)
	if w.t.Failed() {
		w.t.Logf("%s came to %+v (%v), and %s to %+v (%v)", c.command, came, err, c.then, second, secondErr)
	}
	return true
}

// patience is the --timeout of now.
func (s *struck) patience() time.Duration {
	if s.blow.Again == strike.Equal && s.hit() {
		return patience
	}
	return long
}

// continues comes to the end by another process, if there is something to go on with: by resume as
// often as that is said.
func (p *shop) continues(command string, mode journal.Mode) (came migrate.Result, err error) {
	p.t.Helper()
	for range 4 {
		rec := p.record()
		if rec == nil || !rec.Unfinished() && (command == "resume" || rec.TakenBack()) {
			return came, err
		}
		came, err = p.do(p.t.Context(), command, mode, func() time.Duration { return long }, free{})
		p.honest(command, came, err, false)
		if came.Outcome != migrate.Unfinished || !strings.Contains(came.Why, "created again by the control plane; resume") {
			return came, err
		}
		command = "resume"
	}
	return came, err
}
