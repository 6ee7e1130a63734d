package assess

import (
	"bufio"
	"io"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// An MapInput is what a text has in it.
type MapInput struct {
	Volumes []*FlexVolume
	// CSIDrivers are what CSIDriver objects say, by their names.
	CSIDrivers map[string]csivol.DriverInfo
	// Unclear says what was not understood and may have FlexVolumes.
	Unclear []string
}

// A MapReader collects volumes from several texts. The claims, Secrets and CSIDrivers of one
// count for the volumes of all.
type MapReader struct{ manifests *manifests }

// NewMapReader returns a MapReader without a volume.
func NewMapReader() *MapReader { return &MapReader{newManifests()} }

// Read takes manifests of any number.
func (r *MapReader) Read(text io.Reader) error {
	return (&documents{in: bufio.NewReader(text), add: r.manifests.add}).read()
}

// MapInput returns the volumes. One that is not valid has its error in Err.
func (r *MapReader) Input() (*MapInput, error) { return r.manifests.input() }
