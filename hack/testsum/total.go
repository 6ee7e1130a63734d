package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// errTotal adds nothing to the line that total prints, which is to be the last.
var errTotal = errors.New("not everything passed")

// total prints the sum of all steps in the file name. Its error is what must
// make the whole run fail.
func total(name string, status int, out io.Writer) error {
	var sum counts
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // not there: no step ran
		return err
	}
	for line := range bytes.Lines(data) {
		var c counts
		if err := json.Unmarshal(line, &c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sum.Passed += c.Passed
		sum.Failed += c.Failed
		sum.Skipped += c.Skipped
	}
	if sum.Failed == 0 && (status != 0 || sum.Passed == 0) {
		sum.Failed = 1 // lint, a build, or no test ran at all
	}
	fmt.Fprintf(out, "%d passed, %d failed", sum.Passed, sum.Failed)
	if sum.Skipped > 0 {
		fmt.Fprintf(out, ", %d skipped", sum.Skipped)
	}
	fmt.Fprintln(out)
	if sum.Failed > 0 || status != 0 {
		return errTotal
	}
	return nil
}
