package bridgestatus

import (
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/report"
)

// attachmentKind names the document of flex2csi status --attachments.
const attachmentKind = "AttachmentStatus"

// AttachmentStatus has the VolumeAttachments of flex2csi in a cluster, with their states.
type AttachmentStatus struct {
	APIVersion  string              `json:"apiVersion"`
	Kind        string              `json:"kind"`
	Time        time.Time           `json:"time"`
	Attachments []ClusterAttachment `json:"attachments"`
}

// NewAttachments returns an AttachmentStatus without attachments.
func NewAttachments(now time.Time) *AttachmentStatus {
	return &AttachmentStatus{APIVersion: APIVersion, Kind: attachmentKind, Time: now.UTC(), Attachments: []ClusterAttachment{}}
}

// A ClusterAttachment is one VolumeAttachment.
type ClusterAttachment struct {
	Name             string `json:"name"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
	FlexDriver       string `json:"flexDriver,omitempty"`
	CSIDriver        string `json:"csiDriver"`
	VolumeHandle     string `json:"volumeHandle,omitempty"`
	Node             string `json:"node"`
	// AttachedBy is who is responsible: node or controller.
	AttachedBy string `json:"attachedBy,omitempty"`
	// Pod is namespace/name of the one that asked first.
	Pod         string     `json:"pod,omitempty"`
	Attached    bool       `json:"attached"`
	AttachError string     `json:"attachError,omitempty"`
	DetachError string     `json:"detachError,omitempty"`
	Created     time.Time  `json:"created"`
	Deleted     *time.Time `json:"deleted,omitempty"`
	State       string     `json:"state"`
	Reason      string     `json:"reason,omitempty"`
	Leaked      bool       `json:"leaked"`
}

// Filter returns the part of the status that one of the names selects: a
// VolumeAttachment, PersistentVolume, volume handle, driver, node, pod (as
// NAMESPACE/NAME or NAME) or namespace. No names select everything.
func (s *AttachmentStatus) Filter(names []string) *AttachmentStatus {
	if len(names) == 0 {
		return s
	}
	out := *s
	out.Attachments = []ClusterAttachment{}
	for _, a := range s.Attachments {
		namespace, pod, _ := strings.Cut(a.Pod, "/")
		is := []string{a.Name, a.PersistentVolume, a.VolumeHandle, a.CSIDriver, a.FlexDriver, a.Node, a.Pod, namespace, pod}
		if slices.ContainsFunc(is, func(v string) bool { return v != "" && slices.Contains(names, v) }) {
			out.Attachments = append(out.Attachments, a)
		}
	}
	return &out
}

// Show makes a table with a row for each attachment.
func (s *AttachmentStatus) Show(view report.View) *report.Report {
	t := s.table(view == report.Wide)
	return &report.Report{Sections: []report.Section{t.section()}}
}

// ObjectNames are the VolumeAttachments, as type/name.
func (s *AttachmentStatus) ObjectNames() (names []string) {
	for i := range s.Attachments {
		names = append(names, "volumeattachment.storage.k8s.io/"+s.Attachments[i].Name)
	}
	return names
}

func (s *AttachmentStatus) table(wide bool) table {
	t := table{header: []string{"ATTACHMENT", "VOLUME", "NODE", "BY", "ATTACHED", "SINCE", "STATE", "REASON", "TROUBLE"}}
	if wide {
		t.header = append(t.header, "CSI DRIVER", "HANDLE", "FLEX DRIVER", "POD")
	}
	for i := range s.Attachments {
		a := &s.Attachments[i]
		name := a.Name
		if runes := []rune(name); !wide && len(runes) > shortName {
			name = string(runes[:shortName-1]) + "…"
		}
		attached := "no"
		if a.Attached {
			attached = "yes"
		}
		trouble := strings.TrimSpace(a.AttachError + " " + a.DetachError)
		t.add(name, a.PersistentVolume, a.Node, a.AttachedBy, attached, since(s.Time, a.Created), a.State, a.Reason, short(trouble, wide),
			a.CSIDriver, a.VolumeHandle, a.FlexDriver, a.Pod)
	}
	return t
}

// shortName is enough to identify VolumeAttachments: their names are hashes.
const shortName = 16
