package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// requested is an attachment of a record.
func requested(request string) *csivol.Attachment {
	want := on("node-1")
	want.Request = request
	return want
}

// TestAttachRecreatedNode (finding N12): a VolumeAttachment that no record of this node has
// made is re-created before it is used, unless others use it.
func TestAttachRecreatedNode(t *testing.T) {
	other := func() runtime.Object { return ofFlex(requested("other"), objects.AttachedByNode) }
	for name, tt := range map[string]struct {
		there []runtime.Object
		keep  bool
		want  string
	}{
		"of another record":    {[]runtime.Object{other(), nodeObject("node-1")}, false, "delete create"},
		"of no record":         {[]runtime.Object{ofFlex(on("node-1"), objects.AttachedByNode)}, false, "delete create"},
		"of this record":       {[]runtime.Object{ofFlex(requested("mine"), objects.AttachedByNode)}, false, ""},
		"this node has it":     {[]runtime.Object{other(), nodeObject("node-1")}, true, ""},
		"adopted":              {[]runtime.Object{other(), nodeObject("node-1", objects.CSIVolumeName("d", "h"))}, false, ""},
		"of the controller":    {[]runtime.Object{ofFlex(on("node-1"), objects.AttachedByController)}, false, ""},
		"of the control plane": {[]runtime.Object{ofCSI(on("node-1"))}, false, "create"}, // which the API server refuses
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, tt.there, func(t *testing.T, s *apiServer, c *Cluster) {
				want := requested("mine")
				want.Keep, want.KubeletHolds = tt.keep, true
				_, err := daemon(c, "node-1").Attach(t.Context(), want)
				if got := s.changes(); got != tt.want || err != nil {
					t.Errorf("requests %q, want %q: %v", got, tt.want, err)
				}
			})
		})
	}
}

// TestAttachRecreatedNodeUnknown: until the old one is gone the volume is not attached.
func TestAttachRecreatedNodeUnknown(t *testing.T) {
	for _, request := range []string{"get nodes", "get persistentvolumes", "delete volumeattachments", ""} {
		o := ofFlex(requested("other"), objects.AttachedByNode)
		o.Finalizers = []string{"external-attacher/d"}
		inCluster(t, []runtime.Object{o, nodeObject("node-1")}, func(t *testing.T, s *apiServer, c *Cluster) {
			a := daemon(c, "node-1")
			if request != "" {
				s.fail(request, errors.New("no answer"))
			}
			_, err := a.Attach(t.Context(), requested("mine"))
			if err == nil || request == "" && !strings.Contains(err.Error(), "re-created") {
				t.Errorf("%q fails: %v", request, err)
			}
			time.AfterFunc(time.Minute, func() { s.drop(o.Name) })
			if _, err := a.Attach(t.Context(), requested("mine")); err != nil || !strings.HasSuffix(s.changes(), "create") {
				t.Errorf("%q failed, and then: %v", request, err)
			}
		})
	}
}
