// Gcepd is the GCE PD CSI driver, node and controller service of the same
// version, on this machine: its cloud is its own fake one, and a disk that the
// cloud attaches is a loop device here. README.md tells more.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run returns the exit status. What it has to say goes to w.
func run(args []string, w io.Writer) int {
	o, err := parse(args, w)
	if errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(w, "gcepd:", err)
		return 1
	}
	return 0
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

func parse(args []string, w io.Writer) (*options, error) {
	o := &options{Options: serve.Options{Name: "pd.csi.storage.gke.io"}}
	f := pflag.NewFlagSet("gcepd", pflag.ContinueOnError)
	f.SetOutput(w)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprint(w, usage, f.FlagUsages()) }
	f.StringVar(&o.dir, "dir", "", "where disks are kept (required)")
	f.StringArrayVar(&o.disks, "disk", nil, "name of a disk that the cloud has (repeatable)")
	o.AddFlags(f, " (default unix://<dir>/csi.sock)")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.dir == "" {
		return nil, errors.New("where are the disks to be kept? say --dir DIRECTORY")
	}
	// Loop devices tell the path of their image without symbolic links.
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a place for the disks: %w", err)
	}
	dir, err := filepath.Abs(o.dir)
	if err == nil {
		o.dir, err = filepath.EvalSymlinks(dir)
	}
	if o.Endpoint == "" {
		o.Endpoint = filepath.Join(o.dir, "csi.sock")
	}
	return o, err
}
