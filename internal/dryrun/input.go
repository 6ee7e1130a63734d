package dryrun

import (
	"bufio"
	"errors"
	"io"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// An Input is what a text has in it.
type Input struct {
	Volumes []*FlexVolume
	// CSIDrivers are what CSIDriver objects say, by their names.
	CSIDrivers map[string]csivol.DriverInfo
	// Unclear says what was not understood and may have FlexVolumes.
	Unclear []string
}

// maxLine bounds a callout. The kubelet cannot pass more than 128 KiB of options.
const maxLine = 256 << 10

// Read returns the volumes in one text.
func Read(text io.Reader) (*Input, error) {
	r := NewReader()
	if err := r.Read(text); err != nil {
		return nil, err
	}
	return r.Input()
}

// A Reader collects volumes from several texts. The claims, Secrets and CSIDrivers of one
// count for the volumes of all.
type Reader struct{ manifests *manifests }

// NewReader returns a Reader without a volume.
func NewReader() *Reader { return &Reader{newManifests()} }

// Read takes manifests of any number, or one callout on a line.
func (r *Reader) Read(text io.Reader) error {
	in := bufio.NewReaderSize(text, maxLine)
	if start, err := in.Peek(maxLine); errors.Is(err, io.EOF) {
		if driver, args, err := ParseLine(string(start)); err == nil && len(args) > 1 {
			v, err := FromCall(driver, args)
			r.manifests.callouts = append(r.manifests.callouts, v)
			return err
		}
	}
	return (&documents{in: in, add: r.manifests.add}).read()
}

// Input returns the volumes. One that is not valid has its error in Err.
func (r *Reader) Input() (*Input, error) { return r.manifests.input() }
