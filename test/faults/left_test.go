package faults

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// markLeft marks the calls of which the daemon's log says that it has stopped waiting.
// On a busy machine a request may reach the driver only then, and the driver counts
// the time from there: it does not see that its caller has left.
func markLeft(list []calls.Call, log string) {
	for line := range strings.Lines(log) {
		var entry struct {
			Time                            time.Time
			Msg, Method, VolumeHandle, Code string
			Duration                        string
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Msg != "called the CSI driver" {
			continue
		}
		if entry.Code != codes.DeadlineExceeded.String() && entry.Code != codes.Canceled.String() {
			continue
		}
		took, err := time.ParseDuration(entry.Duration)
		if err != nil {
			continue
		}
		sent := entry.Time.Add(-took)
		// The daemon makes one call for a volume at a time: the first since then is it.
		i := slices.IndexFunc(list, func(c calls.Call) bool {
			return c.Method == entry.Method && c.Volume == entry.VolumeHandle && !c.Start.Before(sent)
		})
		if i >= 0 {
			list[i].Left = true
		}
	}
}

// TestMarkLeft: a request of which the caller's time was over when it reached the driver.
func TestMarkLeft(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)).UTC() }
	unpublish := func(path string, from, to int) calls.Call {
		return calls.Call{Method: "NodeUnpublishVolume", Volume: "v", Path: path, Code: "OK", Start: at(from), End: at(to)}
	}
	const left = `{"time":"1970-01-01T00:00:00.598Z","msg":"called the CSI driver","method":"NodeUnpublishVolume","duration":"10ms","volumeHandle":"v","code":"DeadlineExceeded"}` + "\n"
	for name, test := range map[string]struct {
		log  string
		want int // faults
	}{
		"left":           {left, 0},
		"waits":          {"", 1},
		"another volume": {strings.ReplaceAll(left, `"v"`, `"w"`), 1},
		"an earlier one": {strings.ReplaceAll(left, "00.598", "00.698"), 1},
		"an answer":      {strings.ReplaceAll(left, "DeadlineExceeded", "Internal"), 1},
	} {
		list := []calls.Call{unpublish("a", 631, 637), unpublish("b", 636, 640)}
		markLeft(list, test.log)
		if got := (&order{}).check(list); len(got) != test.want {
			t.Errorf("%s: %q, want %d faults", name, got, test.want)
		}
	}
}
