package dryrun

import (
	"bufio"
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

// A Reader collects volumes from several texts. The claims, Secrets and CSIDrivers of one
// count for the volumes of all.
type Reader struct{ manifests *manifests }

// NewReader returns a Reader without a volume.
func NewReader() *Reader { return &Reader{newManifests()} }

// Read takes manifests of any number.
func (r *Reader) Read(text io.Reader) error {
	return (&documents{in: bufio.NewReader(text), add: r.manifests.add}).read()
}

// Input returns the volumes. One that is not valid has its error in Err.
func (r *Reader) Input() (*Input, error) { return r.manifests.input() }
