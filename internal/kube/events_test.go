package kube

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// TestReference: kubectl describe pv shows no Event without the UID of the PersistentVolume.
func TestReference(t *testing.T) {
	c := &Cluster{}
	about := func(n csivol.Event) corev1.ObjectReference { return *c.reference(n) }
	ofPod := csivol.Event{Pod: csivol.Pod{Namespace: "shop", Name: "web-0", UID: "uid-1"}, PersistentVolume: "a"}
	if got, want := about(ofPod), (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0", UID: "uid-1"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	known := boundVolume("a")
	if err := c.volumes.put(known); err != nil || known.UID == "" {
		t.Fatal(known.UID, err)
	}
	for name, uid := range map[string]string{"a": known.UID, "b": ""} {
		if got := about(csivol.Event{PersistentVolume: name}); got.Kind != "PersistentVolume" || got.Name != name || string(got.UID) != uid {
			t.Errorf("got %+v, want the UID %q of PersistentVolume %s", got, uid, name)
		}
	}
}

// TestLogNamesTheVolume: what is done about a VolumeAttachment is found by the request and by
// the volume, and so is an Event.
func TestLogNamesTheVolume(t *testing.T) {
	there := []runtime.Object{ofFlex(requested("other"), objects.AttachedByNode), nodeObject("node-1")}
	inCluster(t, there, func(t *testing.T, s *apiServer, c *Cluster) {
		ctx := volumelog.With(t.Context(), volumelog.Subject{Request: "9f86", VolumeHandle: "h"})
		if _, err := daemon(c, "node-1").Attach(ctx, requested("mine")); err != nil {
			t.Fatal(err)
		}
		c.Notify(csivol.Event{Pod: csivol.Pod{Namespace: "shop", Name: "web-0"}, PersistentVolume: "pv1", Volume: csivol.Key{Driver: "d", Handle: "h"}, Reason: "VolumeSilent"})
		synctest.Wait()
		for _, want := range []string{
			`re-creating it" request=9f86 volumeHandle=h volumeAttachment=csi-`,
			`msg=event persistentVolume=pv1 csiDriver=d volumeHandle=h pod=shop/web-0 namespace=shop reason=VolumeSilent`,
		} {
			if !strings.Contains(s.log.String(), want) {
				t.Errorf("no line has %s:\n%s", want, s.log.String())
			}
		}
	})
}
