// Gcepd is the GCE PD CSI driver, node and controller service of the same
// version, on this machine: its cloud is its own fake one, and a disk that the
// cloud attaches is a loop device here. README.md tells more.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status. What it has to say goes to w.
func run(args []string, w io.Writer) int {
	o := &options{Options: serve.Options{Name: "pd.csi.storage.gke.io"}}
	return serve.Command{Name: "gcepd", Usage: usage, Flags: o.flags, Run: o.run}.Main(args, w)
}

type options struct {
	serve.Options
	dir   string
	disks []string
}

const usage = `gcepd is the GCE PD CSI driver with disks on loop devices, for tests. It runs
until it is interrupted.

  gcepd --dir /tmp/disks --disk disk-1

`

func (o *options) flags(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "dir", "", "where disks are kept (required)")
	f.StringArrayVar(&o.disks, "disk", nil, "name of a disk that the cloud has (repeatable)")
	o.AddFlags(f, " (default unix://<dir>/csi.sock)")
}

// complete checks the flags and fills in what depends on others.
func (o *options) complete() error {
	if o.dir == "" {
		return errors.New("where are the disks to be kept? say --dir DIRECTORY")
	}
	// Loop devices tell the path of their image without symbolic links.
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return fmt.Errorf("make a place for the disks: %w", err)
	}
	dir, err := filepath.Abs(o.dir)
	if err == nil {
		o.dir, err = filepath.EvalSymlinks(dir)
	}
	if o.Endpoint == "" {
		o.Endpoint = filepath.Join(o.dir, "csi.sock")
	}
	return err
}
