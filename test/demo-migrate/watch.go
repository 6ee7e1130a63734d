package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// A sight is what can be seen at one moment.
type sight struct{ claim, volume, mounts string }

// A seen is what was seen in all.
type seen struct {
	began                             time.Time
	lost, bound, gone, back, tookOver time.Time // the first of each; zero: never
}

// A change is what a watch has told.
type change struct {
	when          time.Time
	claim, volume string // one of them
}

// tick is the interval of checks of mounts and lines. still is after how long a line is
// shown without a change.
const (
	tick  = 100 * time.Millisecond
	still = 10 * time.Second
)

// watching shows what is seen until the lines of a program end.
func (t *story) watching(lines <-chan string) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	changes := make(chan change, 64)
	for _, begin := range []func(context.Context, chan<- change) error{t.watchClaim, t.watchVolume} {
		if err := begin(ctx, changes); err != nil {
			t.Fail("watch: %w", err)
			return
		}
	}
	t.saw.began = time.Now()
	var now sight
	var shown time.Time
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	t.Line("%s%s", screen.Indent, t.Paint(screen.Bold, fmt.Sprintf(row, "TIME", "LINES", "CLAIM", "PERSISTENTVOLUME", "MOUNTED IN THE POD'S DIRECTORY")))
	for {
		before, when := now, time.Now()
		select {
		case l, more := <-lines:
			if !more {
				return
			}
			t.quote("│ ", strings.TrimRight(l, " ")+"\n")
			continue
		case c := <-changes:
			when = c.when
			t.saw.note(c)
			if c.claim != "" {
				now.claim = c.claim
			} else {
				now.volume = c.volume
			}
		case <-ticks.C:
			flex, csi, err := t.pod.mounted()
			if err != nil {
				t.Fail("look at the mounts: %w", err)
				return
			}
			now.mounts = mountNames(flex, csi)
			if flex && csi && t.saw.tookOver.IsZero() {
				t.saw.tookOver = when
			}
		}
		if complete := now.claim != "" && now.volume != "" && now.mounts != ""; complete && (now != before || when.Sub(shown) > still) {
			t.show(when, now, before)
			shown = when
		}
	}
}

const row = "%7s  %5s  %-7s %-26s %s"

// show is a line of what is seen; what is new in it is painted.
func (t *story) show(when time.Time, now, before sight) {
	count, _, err := t.pod.lines()
	if err != nil {
		t.Fail("read the lines: %w", err)
		return
	}
	style := screen.Plain
	if now != before {
		style = screen.Yellow
	}
	text := fmt.Sprintf(row, fmt.Sprintf("%.2f s", when.Sub(t.saw.began).Seconds()), fmt.Sprint(count), now.claim, now.volume, now.mounts)
	t.Line("%s%s", screen.Indent, t.Paint(style, text))
}

// note keeps when what happened first.
func (s *seen) note(c change) {
	first := func(when *time.Time) {
		if when.IsZero() {
			*when = c.when
		}
	}
	switch {
	case c.claim == string(corev1.ClaimLost):
		first(&s.lost)
	case c.claim == string(corev1.ClaimBound) && !s.lost.IsZero():
		first(&s.bound)
	case c.volume == none:
		first(&s.gone)
	case c.volume != "" && !s.gone.IsZero():
		first(&s.back)
	}
}

// lostFor tells for how long the claim was Lost. A kube-controller-manager that is slow to
// look finds the new PersistentVolume at once.
func (s *seen) lostFor() string {
	if s.lost.IsZero() {
		return "never Lost"
	}
	return fmt.Sprintf("Lost for %d ms", s.bound.Sub(s.lost).Milliseconds())
}

func only() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

func (t *story) watchClaim(ctx context.Context, changes chan<- change) error {
	w, err := t.node.Client().CoreV1().PersistentVolumeClaims(namespace).Watch(ctx, only())
	if err != nil {
		return err
	}
	go follow(w, changes, func(e watch.Event) (c change) {
		if claim, ok := e.Object.(*corev1.PersistentVolumeClaim); ok {
			c.claim = string(claim.Status.Phase)
		}
		return c
	})
	return nil
}

// none is what is there of a volume that is not.
const none = "none"

func (t *story) watchVolume(ctx context.Context, changes chan<- change) error {
	w, err := t.node.Client().CoreV1().PersistentVolumes().Watch(ctx, only())
	if err != nil {
		return err
	}
	go follow(w, changes, func(e watch.Event) (c change) {
		volume, ok := e.Object.(*corev1.PersistentVolume)
		switch {
		case !ok:
		case e.Type == watch.Deleted:
			c.volume = none
		case volume.DeletionTimestamp != nil:
			c.volume = "FlexVolume, Terminating"
		case volume.Spec.FlexVolume != nil:
			c.volume = "FlexVolume"
		default:
			c.volume = "CSI"
		}
		return c
	})
	return nil
}

func follow(w watch.Interface, changes chan<- change, tell func(watch.Event) change) {
	for e := range w.ResultChan() {
		if c := tell(e); c != (change{}) {
			c.when = time.Now()
			changes <- c
		}
	}
}
