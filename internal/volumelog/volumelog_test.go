package volumelog_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volumelog"
)

const (
	podDir    = "/var/lib/kubelet/pods/uid-1/volumes/example.com~disk/pv1"
	otherDir  = "/var/lib/kubelet/pods/uid-2/volumes/example.com~disk/pv1"
	deviceDir = "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv1"
)

// line is what a subject adds to a line.
func line(s volumelog.Subject) string {
	var out bytes.Buffer
	s.Logger(slog.New(slog.NewTextHandler(&out, nil))).Info("hello")
	_, attrs, _ := strings.Cut(strings.TrimSpace(out.String()), "msg=hello")
	return strings.TrimSpace(attrs)
}

func TestOf(t *testing.T) {
	pod := volumelog.Subject{PersistentVolume: "pv1", Namespace: "shop", Pod: "web-0", PodUID: "uid-1"}
	for _, c := range []struct {
		dir  string
		more volumelog.Subject
		want string
	}{
		{podDir, pod, "persistentVolume=pv1 pod=shop/web-0 namespace=shop podUID=uid-1 dir=" + podDir},
		{podDir, volumelog.Subject{}, "persistentVolume=pv1 podUID=uid-1 dir=" + podDir}, // unmount
		{deviceDir, volumelog.Subject{}, "persistentVolume=pv1 dir=" + deviceDir},
		{"", volumelog.Subject{PersistentVolume: "pv1"}, "persistentVolume=pv1"}, // detach
		{"/mnt", volumelog.Subject{PersistentVolume: "pv1"}, "persistentVolume=pv1 dir=/mnt"},
		{"", volumelog.Subject{}, ""},
	} {
		if got := line(volumelog.OfDir(c.dir).And(c.more)); got != c.want {
			t.Errorf("%s, %+v:\n%s, want\n%s", c.dir, c.more, got, c.want)
		}
	}
}

// TestAnd: what a line says of a pod is not said of the pod of another directory.
func TestAnd(t *testing.T) {
	s := volumelog.OfDir(podDir).And(volumelog.Subject{Request: "9f86", Namespace: "shop", Pod: "web-0"})
	for _, c := range []struct {
		more volumelog.Subject
		want string
	}{
		{volumelog.Subject{VolumeHandle: "h1", CSIDriver: "disk.csi.example.com"}, "request=9f86 persistentVolume=pv1 csiDriver=disk.csi.example.com volumeHandle=h1 pod=shop/web-0 namespace=shop podUID=uid-1 dir=" + podDir},
		{volumelog.OfDir(podDir), "request=9f86 persistentVolume=pv1 pod=shop/web-0 namespace=shop podUID=uid-1 dir=" + podDir},
		{volumelog.OfDir(otherDir), "request=9f86 persistentVolume=pv1 podUID=uid-2 dir=" + otherDir},
		{volumelog.OfDir(deviceDir), "request=9f86 persistentVolume=pv1 dir=" + deviceDir},
	} {
		if got := line(s.And(c.more)); got != c.want {
			t.Errorf("%s, want\n%s", got, c.want)
		}
	}
}

func TestContext(t *testing.T) {
	lone := t.Context()
	volumelog.Learn(lone, volumelog.Subject{VolumeHandle: "h1"}) // nothing is carried
	if got := volumelog.From(lone); got != (volumelog.Subject{}) {
		t.Errorf("got %+v", got)
	}
	call := volumelog.With(lone, volumelog.Subject{Request: "9f86"})
	before := volumelog.With(call, volumelog.Subject{})
	volumelog.Learn(context.WithoutCancel(call), volumelog.Subject{VolumeHandle: "h1"})
	after := volumelog.With(call, volumelog.Subject{PersistentVolume: "pv1"})
	for what, c := range map[string]struct {
		ctx  context.Context
		want volumelog.Subject
	}{
		"the call":         {call, volumelog.Subject{Request: "9f86", VolumeHandle: "h1"}},
		"what was earlier": {before, volumelog.Subject{Request: "9f86"}},
		"what is later":    {after, volumelog.Subject{Request: "9f86", VolumeHandle: "h1", PersistentVolume: "pv1"}},
	} {
		if got := volumelog.From(c.ctx); got != c.want {
			t.Errorf("%s: got %+v, want %+v", what, got, c.want)
		}
	}
}

// TestKeysAreDocumented: users search by them.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	all := line(volumelog.Subject{Request: "r", PersistentVolume: "p", CSIDriver: "c", VolumeHandle: "v", Namespace: "n", Pod: "p", PodUID: "u", Dir: "d"})
	for attr := range strings.FieldsSeq(all) {
		if key, _, _ := strings.Cut(attr, "="); !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("docs/troubleshooting.md does not name the key %s", key)
		}
	}
}
