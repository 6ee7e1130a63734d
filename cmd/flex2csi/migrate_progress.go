package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/terminal"
)

// progress prints the progress of a migration: a line for each event, and on a terminal
// a last line with the state.
type progress struct {
	out    io.Writer
	redraw bool      // out is a terminal
	log    io.Writer // gets the lines, too, if it is not nil
	total  int
	now    func() time.Time

	mu       sync.Mutex
	start    time.Time
	underWay map[string]bool
	trouble  map[string]bool
	done     int
	shown    bool // the last line is printed
}

func newProgress(out io.Writer, redraw bool, log io.Writer, total int) *progress {
	return &progress{
		out: out, redraw: redraw, log: log, total: total, now: time.Now, start: time.Now(),
		underWay: map[string]bool{}, trouble: map[string]bool{},
	}
}

// tell prints an event.
func (p *progress) tell(e migrate.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.What {
	case migrate.Begun:
		p.underWay[e.Volume] = true
	case migrate.Troubled:
		p.trouble[e.Volume] = true
	case migrate.Reached:
		delete(p.trouble, e.Volume)
	case migrate.Over:
		delete(p.underWay, e.Volume)
		delete(p.trouble, e.Volume)
		if e.Result == nil || e.Result.Outcome != migrate.Done {
			p.trouble[e.Volume] = true
			break
		}
		p.done++
	}
	if e.What == migrate.Paused {
		p.line(e.At, e.Text)
		return
	}
	p.line(e.At, fmt.Sprintf("%-20s %s", e.Volume, said(e)))
}

// say prints a line that is about no volume.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line(p.now(), fmt.Sprintf(format, args...))
}

// line prints a line above the last one.
func (p *progress) line(at time.Time, text string) {
	p.erase()
	text = terminal.Safe(text)
	fmt.Fprintf(p.out, "%s %s\n", at.Local().Format(time.TimeOnly), text)
	if p.log != nil {
		fmt.Fprintf(p.log, "%s %s\n", at.UTC().Format(time.RFC3339), text)
	}
	p.last()
}

func (p *progress) erase() {
	if p.shown {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.shown = false
	}
}

// last prints the last line.
func (p *progress) last() {
	if !p.redraw {
		return
	}
	took := p.now().Sub(p.start).Round(time.Second)
	fmt.Fprintf(p.out, "%d/%d done, %d under way, %d in trouble, %02d:%02d", p.done, p.total, len(p.underWay), len(p.trouble), int(took.Minutes()), int(took.Seconds())%60)
	p.shown = true
}

// run updates the time in the last line until end is called.
func (p *progress) run() (end func()) {
	if !p.redraw {
		return func() {}
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				p.mu.Lock()
				p.erase()
				p.last()
				p.mu.Unlock()
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		p.mu.Lock()
		defer p.mu.Unlock()
		p.erase()
		p.redraw = false
	}
}

// said returns the text of an event.
func said(e migrate.Event) string {
	var text string
	switch e.What {
	case migrate.Begun:
		text = "begun"
		if e.Direction == journal.ToFlexVolume {
			text = "begun to go back to the FlexVolume"
		}
	case migrate.Reached:
		text = string(e.Stage)
		if e.Took > 0 {
			text += " after " + short(e.Took)
		}
	case migrate.Waiting:
		text = "waiting"
	case migrate.Troubled:
		text = "TROUBLE"
	case migrate.Over:
		if e.Result != nil {
			return finalWords(*e.Result)
		}
		text = "over"
	default:
		text = string(e.What)
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// finalWords returns the text for the end of a volume's migration.
func finalWords(r migrate.Result) string {
	words := []string{outcome(r)}
	if r.Why != "" {
		words[0] += ": " + r.Why
	}
	if r.Lost > 0 {
		words = append(words, "the claim was Lost for "+short(r.Lost))
	}
	if r.TakenOver > 0 {
		words = append(words, "taken over after "+short(r.TakenOver))
	}
	return strings.Join(words, "; ")
}

// outcome returns the result of a volume as text.
func outcome(r migrate.Result) string {
	switch r.Outcome {
	case migrate.Done:
		if r.Direction == journal.ToFlexVolume {
			return "taken back"
		}
		return "migrated"
	case migrate.Left:
		return "left"
	case migrate.Later:
		return "later"
	case migrate.PutBack:
		return "PUT BACK"
	case migrate.Interrupted:
		return "INTERRUPTED"
	}
	return "NOT FINISHED"
}

// short formats a duration.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
