package assess

import (
	"errors"
	"fmt"
	"io"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/manifest"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/strict/strictyaml"
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
func (r *MapReader) Read(text io.Reader) error { return manifest.Documents(text, r.manifests.parse) }

// Input returns the volumes. One that is not valid has its error in Err.
func (r *MapReader) Input() (*MapInput, error) { return r.manifests.input() }

// parse passes on the manifests in a text that begins in a line of the input.
func (m *manifests) parse(text string, line int) error {
	docs, err := strictyaml.ParseAll([]byte(text))
	if syntax, ok := errors.AsType[*strictyaml.SyntaxError](err); ok && syntax.Line+line > 1 {
		syntax.Line = max(1, syntax.Line) + line - 1
	}
	if err != nil {
		return err
	}
	for _, doc := range docs {
		list := []strict.Node{doc}
		if doc.Kind == strict.Array {
			list = doc.Items
		}
		for _, one := range list {
			if one.Kind != strict.Object {
				return fmt.Errorf("line %d: want a manifest, but got %s", one.Line+line-1, one.Kind)
			}
			m.add(object{one})
		}
	}
	return nil
}
