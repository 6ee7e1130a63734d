package main

import (
	"flag"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "write the reference and the man pages")

// TestManual: docs/reference and man are what the commands say of themselves. With
// -update (make docs) they are made.
func TestManual(t *testing.T) {
	files, err := manual.Files(newRoot())
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, "../..", files, *update, "docs/reference/flex2csi*.md", "man/flex2csi*.1")
}
