package flex

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Status is the outcome of a callout. The kubelet compares the exact text
// (pkg/volume/flexvolume/driver-call.go:264-267, Kubernetes v1.37.1).
type Status string

// The three outcomes. The kubelet remembers "Not supported" per callout until
// something changes in the driver's directory, and does something of its own
// instead (plugin.go:286-302): it is for what a driver never does, not for
// what it cannot do now.
const (
	StatusSuccess      Status = "Success"
	StatusFailure      Status = "Failure"
	StatusNotSupported Status = "Not supported"
)

// Capabilities tell the kubelet, in the answer to init, what a driver can do
// (driver-call.go:231-247). They hold for every volume of the driver. All
// five are always printed.
type Capabilities struct {
	// Attach: the kubelet and kube-controller-manager call attach,
	// waitforattach, mountdevice, unmountdevice and detach, too.
	Attach bool `json:"attach"`
	// SELinuxRelabel: the container runtime relabels all files of the volume.
	SELinuxRelabel bool `json:"selinuxRelabel"`
	// FSGroup: after mount the kubelet gives all files to the pod's fsGroup.
	FSGroup bool `json:"fsGroup"`
	// SupportsMetrics: the kubelet asks statfs(2) for the volume's use.
	SupportsMetrics bool `json:"supportsMetrics"`
	// RequiresFSResize: expandfs is called. Keep it true: with false the
	// kubelet expands nothing, while the claim stays "resize pending".
	RequiresFSResize bool `json:"requiresFSResize"`
}

// DefaultCapabilities returns what suits a driver of local filesystems without
// a control plane: everything but Attach.
func DefaultCapabilities() Capabilities {
	return Capabilities{SELinuxRelabel: true, FSGroup: true, SupportsMetrics: true, RequiresFSResize: true}
}

// DriverStatus is the answer to a callout (driver-call.go:209-228).
type DriverStatus struct {
	Status Status `json:"status"`
	// Message is the reason for a Failure. It becomes an event of the pod,
	// after "<callout> command failed, status: Failure, reason: ".
	Message string `json:"message,omitempty"`
	// Device answers attach and waitforattach.
	Device string `json:"device,omitempty"`
	// VolumeName answers getvolumename.
	VolumeName string `json:"volumeName,omitempty"`
	// Attached answers isattached. Left out it means false to the kubelet.
	Attached *bool `json:"attached,omitempty"`
	// Capabilities answer init. The kubelet crashes on null (plugin.go:89),
	// hence omitempty.
	Capabilities *Capabilities `json:"capabilities,omitempty"`

	// Code classes a Failure for logs. It is not part of the answer.
	Code Code `json:"-"`
}

// Success returns the answer for what is done. Device, VolumeName and Attached are for the
// callouts that ask for them.
func Success() DriverStatus { return DriverStatus{Status: StatusSuccess} }

// Failure returns the answer for an error, without redaction: see [Redactor].
func Failure(err error) DriverStatus {
	if err == nil {
		err = Errorf(CodeInternal, "failed without a reason")
	}
	// fmt survives an Error method that panics.
	return DriverStatus{Status: StatusFailure, Message: fmt.Sprint(err), Code: CodeOf(err)}
}

const (
	maxEncoded = 4096 // PIPE_BUF: one write to a pipe, whole or not at all
	maxMessage = 1024
)

// Encode returns the answer as the kubelet reads it: exactly one JSON object
// and a newline, valid UTF-8, at most 4096 bytes. It never fails. The message
// becomes one line of at most 1 KiB. An answer that cannot be given unharmed,
// such as a device name that is no UTF-8, turns into a Failure that says so.
func (s DriverStatus) Encode() []byte {
	if problem := s.problem(); problem != "" {
		s = DriverStatus{Status: StatusFailure, Message: problem}
	}
	s.Message = cut(oneLine(s.Message), maxMessage)
	b := s.appendJSON(make([]byte, 0, 256))
	if len(b) > maxEncoded {
		s = DriverStatus{Status: StatusFailure, Message: fmt.Sprintf(
			"the driver's answer is too long (%d bytes, at most %d): shorten the device or volume name", len(b), maxEncoded)}
		b = s.appendJSON(b[:0])
	}
	return b
}

// problem says why the answer cannot be given as it is, or nothing.
func (s DriverStatus) problem() string {
	switch {
	case s.Status != StatusSuccess && s.Status != StatusFailure && s.Status != StatusNotSupported:
		return fmt.Sprintf("the driver gave no valid status (%q): this is a bug in the driver", cut(string(s.Status), 32))
	case s.Status == StatusFailure && oneLine(s.Message) == "":
		return "failed without a reason: this is a bug in the driver"
	case !utf8.ValidString(s.Device):
		return fmt.Sprintf("the device name %q is not valid UTF-8 and cannot be answered", cut(s.Device, 256))
	case !utf8.ValidString(s.VolumeName):
		return fmt.Sprintf("the volume name %q is not valid UTF-8 and cannot be answered", cut(s.VolumeName, 256))
	}
	return ""
}

// oneLine turns control and format characters and runs of white space into one space:
// messages end up in events and log lines.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
	}), " ")
}

// cut shortens s to at most n bytes, the mark included, not within a rune.
func cut(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
