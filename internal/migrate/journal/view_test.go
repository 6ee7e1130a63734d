package journal_test

import (
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestLease: with a clock that was half a minute ahead a migration that was
// under way seemed to be halted, and was told to be resumed at once.
func TestLease(t *testing.T) {
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	dead := func(process string) bool { return process == "dead" }
	held := journal.LockView{Holder: "eve@ws1", Process: "alive", Renewed: now, Duration: 30 * time.Second}
	for name, test := range map[string]struct {
		change     func(*journal.LockView)
		free, over bool
	}{
		"held":                              {func(*journal.LockView) {}, false, false},
		"no holder":                         {func(l *journal.LockView) { l.Holder = "" }, true, false},
		"the process is dead":               {func(l *journal.LockView) { l.Process = "dead" }, true, false},
		"the process is not known":          {func(l *journal.LockView) { l.Process = "" }, false, false},
		"a clock that is ahead":             {func(l *journal.LockView) { l.Renewed = now.Add(-40 * time.Second) }, false, false},
		"a clock that is behind":            {func(l *journal.LockView) { l.Renewed = now.Add(time.Hour) }, false, false},
		"not renewed":                       {func(l *journal.LockView) { l.Renewed = now.Add(-61 * time.Second) }, false, true},
		"it does not say when, or how long": {func(l *journal.LockView) { l.Renewed, l.Duration = time.Time{}, 0 }, false, true},
	} {
		l := held
		test.change(&l)
		if l.Free(dead) != test.free || l.Over(now) != test.over {
			t.Errorf("%s: free %v, over %v", name, l.Free(dead), l.Over(now))
		}
		if l.Free(nil) != (l.Holder == "") {
			t.Errorf("%s: free where it is not known who is dead: %v", name, l.Free(nil))
		}
	}
}
