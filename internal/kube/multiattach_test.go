package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestExclusive is what the control plane lets be on two nodes.
func TestExclusive(t *testing.T) {
	const rwo, rwop, rox, rwx = csivol.ReadWriteOnce, csivol.ReadWriteOncePod, csivol.ReadOnlyMany, csivol.ReadWriteMany
	for _, tt := range []struct {
		modes []csivol.AccessMode
		want  bool
	}{
		{[]csivol.AccessMode{rwo}, true},
		{[]csivol.AccessMode{rwop}, true},
		{[]csivol.AccessMode{rox}, false},
		{[]csivol.AccessMode{rwx}, false},
		{[]csivol.AccessMode{rwo, rwx}, false},
	} {
		inCluster(t, []runtime.Object{ofFlex(on("node-2"), objects.AttachedByNode)}, func(t *testing.T, s *apiServer, c *Cluster) {
			want := on("node-1")
			want.AccessModes = tt.modes
			_, err := daemon(c, "node-1").Attach(t.Context(), want)
			if refused := err != nil; refused != tt.want || len(s.nodes()) == 2 == tt.want {
				t.Errorf("%v: on %v, %v", tt.modes, s.nodes(), err)
			}
		})
	}
}

// TestMultiAttach: no VolumeAttachment is created while another node has the volume,
// whichever component attached it.
func TestMultiAttach(t *testing.T) {
	otherDriver, otherVolume, misnamed := on("node-2"), on("node-2"), ofCSI(on("node-2"))
	otherDriver.Driver, otherVolume.Handle, misnamed.Name = "e", "other", "csi-1"
	for name, tt := range map[string]struct {
		there *storagev1.VolumeAttachment
		error string
	}{
		"by another daemon":               {ofFlex(on("node-2"), objects.AttachedByNode), "multi-attach"},
		"by the controller":               {ofFlex(on("node-2"), objects.AttachedByController), "multi-attach"},
		"by the control plane":            {ofCSI(on("node-2")), "multi-attach"},
		"being detached":                  {leaving(ofFlex(on("node-2"), objects.AttachedByNode)), "still being detached"},
		"being detached, as a CSI volume": {leaving(ofCSI(on("node-2"))), "still being detached"},
		"of another driver":               {ofFlex(otherDriver, objects.AttachedByNode), ""},
		"of another volume":               {ofFlex(otherVolume, objects.AttachedByNode), ""},
		"another volume, unmanaged":       {ofCSI(otherVolume), ""},
		"the name is of no volume":        {misnamed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, []runtime.Object{tt.there}, func(t *testing.T, s *apiServer, c *Cluster) {
				a := daemon(c, "node-1")
				for try := range 2 { // also with the watch that the first try has started
					time.Sleep(time.Duration(try) * time.Minute)
					if settled := a.onDemand[unlabeled] != nil && a.onDemand[unlabeled].isSettled(); settled != (try > 0) {
						t.Errorf("try %d: the watch is settled: %t", try, settled)
					}
					_, err := a.Attach(t.Context(), on("node-1"))
					if (tt.error == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tt.error) || !errors.Is(err, csivol.ErrNotBegun)) {
						t.Errorf("%v, want %q", err, tt.error)
					}
					if got := s.changes(); tt.error != "" && got != "" {
						t.Errorf("requests %q", got)
					}
				}
			})
		})
	}
}

// TestMultiAttachUnknown: without an answer nothing is created.
func TestMultiAttachUnknown(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		s.fail("list volumeattachments", errors.New("no answer"))
		if _, err := a.Attach(t.Context(), on("node-1")); err == nil || s.changes() != "" {
			t.Errorf("attached: %v", err)
		}
		s.fail("create volumeattachments", apierrors.NewTimeoutError("no answer", 1))
		if _, err := a.Attach(t.Context(), on("node-1")); err == nil || errors.Is(err, csivol.ErrNotBegun) {
			t.Errorf("it may have been created: %v", err)
		}
		if _, err := a.Attach(t.Context(), on("node-1")); err != nil {
			t.Error(err)
		}
	})
}

// TestRace: another node creates its VolumeAttachment between the check and ours. The later
// one is taken back; the first one waits for that.
func TestRace(t *testing.T) {
	for _, later := range []bool{false, true} {
		for _, other := range []*storagev1.VolumeAttachment{ofFlex(on("node-2"), objects.AttachedByNode), ofCSI(on("node-2"))} {
			inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
				a := daemon(c, "node-1")
				other.UID, other.CreationTimestamp = "other", metav1.NewTime(time.Now().Add(-time.Second))
				if later {
					other.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Second))
				}
				s.when("create volumeattachments", func() {
					s.put(other)
					if later {
						time.AfterFunc(time.Second, func() { s.drop(other.Name) })
					}
				})
				_, err := a.Attach(t.Context(), on("node-1"))
				want := map[bool]string{false: "node-2", true: "node-1"}[later]
				if left := s.nodes(); (err == nil) != later || !slices.Equal(left, []string{want}) {
					t.Errorf("the other one is later: %t; it is on %v, want %s: %v", later, left, want, err)
				}
			})
		}
	}
}

// TestRaceUnknown: a daemon that could not check after the creation does so before it uses
// the attachment, in the next call or the next process.
func TestRaceUnknown(t *testing.T) {
	for _, restart := range []bool{false, true} {
		inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
			a := daemon(c, "node-1")
			s.when("create volumeattachments", func() {
				s.put(ofFlex(on("node-2"), objects.AttachedByNode))
				s.fail("list volumeattachments", errors.New("no answer"))
				s.sticky = true
			})
			if _, err := a.Attach(t.Context(), on("node-1")); err == nil {
				t.Error("attached without a check")
			}
			s.sticky = false
			if restart {
				a = daemon(c, "node-1")
			}
			if _, err := a.Attach(t.Context(), on("node-1")); err == nil || !strings.Contains(err.Error(), "multi-attach") {
				t.Errorf("after a restart: %t; used: %v", restart, err)
			}
		})
	}
}

// TestRightful: a VolumeAttachment that has the name only.
func TestRightful(t *testing.T) {
	o := ofFlex(on("node-1"), objects.AttachedByNode)
	o.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = "of another tenant"
	inCluster(t, []runtime.Object{o}, func(t *testing.T, s *apiServer, c *Cluster) {
		if _, err := daemon(c, "node-1").Attach(t.Context(), on("node-1")); err == nil || s.changes() != "" {
			t.Errorf("used: %v", err)
		}
	})
}
