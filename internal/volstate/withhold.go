package volstate

import (
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Values that look secret are masked in files: passwords in mount flags and contexts, from
// the options of a PersistentVolume or from the CSI driver. The record in memory has them;
// a record from a file lacks them until the next call. See
// docs/adr/0010-no-secret-in-a-state-file.md.

// public returns the record for a file.
func (r *Record) public() *Record {
	c := r.Clone()
	c.Context, c.PublishContext = publicMap(r.Context), publicMap(r.PublishContext)
	c.MountFlags = publicFlags(r.MountFlags)
	c.LastError, c.StageDead = errorText(r.LastError), errorText(r.StageDead)
	c.Changed = c.Changed.UTC()
	for _, t := range c.Targets {
		t.Since = t.Since.UTC()
		t.LastError, t.Dead = errorText(t.LastError), errorText(t.Dead)
	}
	return c
}

// maxText bounds an error text in a file: drivers answer with pages, and a record that
// has grown too large could not be written any more.
const maxText = 1 << 10

// errorText masks and clips. What must be sent to a driver again is never clipped.
func errorText(text string) string {
	if text = mask(text); len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

func publicMap(values map[string]string) map[string]string {
	public := maps.Clone(values)
	for name, value := range values {
		if guard.SensitiveKey(name) {
			public[name] = guard.Mask
		} else {
			public[name] = mask(value)
		}
	}
	return public
}

func publicFlags(flags []string) []string {
	public := slices.Clone(flags)
	for i, masked := range guard.MaskOptions(flags) {
		public[i] = mask(masked)
	}
	return public
}

// mask masks what looks secret in a text: password=…, user:…@host.
func mask(text string) string {
	var byKey *flex.Redactor
	return byKey.Redact(text)
}

func withheld(value string) bool { return strings.Contains(value, guard.Mask) }

// Incomplete reports whether the volume context or the mount flags have masked values.
func (r *Record) Incomplete() bool {
	return anyWithheld(r.Context) || slices.ContainsFunc(r.MountFlags, withheld)
}

// PublishContextIncomplete is [Record.Incomplete] of the publish context.
func (r *Record) PublishContextIncomplete() bool { return anyWithheld(r.PublishContext) }

func anyWithheld(values map[string]string) bool {
	for _, value := range values {
		if withheld(value) {
			return true
		}
	}
	return false
}

// Complete sets the masked values, from a call that equals the record in everything else.
func (r *Record) Complete(context map[string]string, mountFlags []string) {
	if r.Incomplete() && maps.Equal(publicMap(r.Context), publicMap(context)) && slices.Equal(publicFlags(r.MountFlags), publicFlags(mountFlags)) {
		r.Context, r.MountFlags = context, mountFlags
	}
}

// KnownFlags returns the mount flags that are not masked.
func (r *Record) KnownFlags() []string {
	if !slices.ContainsFunc(r.MountFlags, withheld) {
		return r.MountFlags
	}
	return slices.DeleteFunc(slices.Clone(r.MountFlags), withheld)
}
