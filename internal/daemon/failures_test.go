package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const failDir = "/var/lib/kubelet/pods/uid-1/volumes/a~b/pv1"

// failCalls makes calls with an answer, a minute apart.
type failCalls struct {
	failures
	now time.Time
	id  int
}

func (f *failCalls) call(s flex.DriverStatus, argv ...string) {
	f.id++
	f.now = f.now.Add(time.Minute)
	f.note(&wire.Request{ID: fmt.Sprint(f.id), Driver: "a/b", Argv: argv}, s, f.now)
}

func failed(message string) flex.DriverStatus {
	return flex.Failure(flex.Errorf(flex.CodeNotFound, "%s", message))
}

func options(pv string) string {
	return `{"kubernetes.io/pvOrVolumeName":"` + pv + `","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"shop"}`
}

// TestFailures: what fails again and again is one failure, and it is over with
// the first call for the same that succeeds.
func TestFailures(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f := &failCalls{now: start}
	success := flex.DriverStatus{Status: flex.StatusSuccess}
	f.call(success, "mount", failDir, options("pv1"))
	f.call(failed("no"), "mount", failDir, options("pv1"))
	f.call(failed("no such volume"), "mount", failDir, options("pv1"))
	f.call(failed("busy"), "detach", "pv2", "node-1")
	f.call(failed("bad arguments"), "mount")
	want := []bridgestatus.Failure{
		{FlexDriver: "a/b", Command: "detach", PersistentVolume: "pv2", Since: start.Add(4 * time.Minute), Last: start.Add(4 * time.Minute), Count: 1, Request: "4", Code: "not_found", Message: "busy"},
		{
			FlexDriver: "a/b", Command: "mount", PersistentVolume: "pv1", Dir: failDir, Pod: bridgestatus.PodRef{Namespace: "shop", Name: "web", UID: "uid-1"},
			Since: start.Add(2 * time.Minute), Last: start.Add(3 * time.Minute), Count: 2, Request: "3", Code: "not_found", Message: "no such volume",
		},
	}
	if diff := cmp.Diff(want, f.list(f.now)); diff != "" {
		t.Error(diff)
	}
	f.call(success, "unmount", failDir) // the pod is gone
	if got := f.list(f.now); len(got) != 1 || got[0].Command != "detach" {
		t.Errorf("after an unmount: %+v", got)
	}
	if got := f.list(f.now.Add(failureLife)); len(got) != 0 {
		t.Errorf("still there after its life: %+v", got)
	}
}

// TestFailuresAreBounded in number and length.
func TestFailuresAreBounded(t *testing.T) {
	f := &failCalls{}
	for i := range failuresKept + 5 {
		f.call(failed(strings.Repeat("é", failureText)), "detach", fmt.Sprint("pv", i), "node-1")
	}
	got := f.list(time.Time{})
	if len(got) != failuresKept || got[0].PersistentVolume != fmt.Sprint("pv", failuresKept+4) {
		t.Errorf("%d are kept, the first is %s", len(got), got[0].PersistentVolume)
	}
	if m := got[0].Message; len(m) > failureText+len("…") || !utf8.ValidString(m) {
		t.Errorf("the message has %d bytes, valid UTF-8: %t", len(m), utf8.ValidString(m))
	}
}
