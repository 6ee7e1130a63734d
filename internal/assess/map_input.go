package assess

import (
	"errors"
	"fmt"
	"io"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
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
func (r *MapReader) Read(text io.Reader) error { return yamltext.Documents(text, r.manifests.parse) }

// Input returns the volumes. One that is not valid has its error in Err.
func (r *MapReader) Input() (*MapInput, error) { return r.manifests.input() }

// parse passes on the manifests in a text that begins in a line of the input.
func (m *manifests) parse(text string, line int) error {
	docs, err := yamltext.ParseAll([]byte(text))
	if invalid, ok := errors.AsType[*strict.InvalidError](err); ok && invalid.Faults[0].Line+line > 1 {
		invalid.Faults[0].Line = max(1, invalid.Faults[0].Line) + line - 1
	}
	if err != nil {
		return err
	}
	for _, doc := range docs {
		list := []object{{doc}}
		if list[0].kind() == strict.Array {
			list = list[0].items()
		}
		for _, one := range list {
			if kind := one.kind(); kind != strict.Object {
				return fmt.Errorf("line %d: want a manifest, but got %s", one.Line+line-1, kind)
			}
			m.add(one)
		}
	}
	return nil
}
