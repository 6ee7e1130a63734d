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
}

// maxLine bounds a callout. The kubelet cannot pass more than 128 KiB of options.
const maxLine = 256 << 10

// Read returns the volumes in a text: manifests of any number, or one callout on a line.
// A volume that is not valid has its error in Err.
func Read(r io.Reader) (*Input, error) {
	in := bufio.NewReaderSize(r, maxLine)
	if start, err := in.Peek(maxLine); errors.Is(err, io.EOF) {
		if driver, args, err := ParseLine(string(start)); err == nil && len(args) > 1 {
			v, err := FromCall(driver, args)
			return &Input{Volumes: []*FlexVolume{v}}, err
		}
	}
	m := newManifests()
	if err := (&documents{in: in, add: m.add}).read(); err != nil {
		return nil, err
	}
	return m.input()
}
