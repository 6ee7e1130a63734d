// Command release makes what users download of a version, in one directory: programs,
// image, chart, manifests, SBOMs, krew manifest, release notes, provenance and checksums.
//
//	release --version v0.1.0 --output DIR
//
// It builds what is committed, in a clone of its own that has the version as its tag. So
// two clones of one commit give the same bytes, with the same release of Go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	version, source, output, key string
	unreleased                   bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := pflag.NewFlagSet("release", pflag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.version, "version", "", "`version`, such as v0.1.0")
	flags.StringVar(&o.source, "source", ".", "`directory` of the repository")
	flags.StringVarP(&o.output, "output", "o", "", "`directory` to make, or to replace")
	flags.StringVar(&o.key, "key", "", "SSH private key, a `file`, to sign the checksums with")
	flags.BoolVar(&o.unreleased, "unreleased", false, "take the notes of [Unreleased] if CHANGELOG.md has no section of the version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.output == "" || flags.NArg() > 0 {
		return errors.New("needs --version and --output, and takes no arguments")
	}
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(o.version) {
		return fmt.Errorf("--version %q: want one such as v0.1.0", o.version)
	}
	return o.make(ctx, out)
}

// make makes the directory. It appears under its name when it is complete.
func (o *options) make(ctx context.Context, out io.Writer) (err error) {
	parent := filepath.Dir(filepath.Clean(o.output))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, ".release-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &release{version: o.version, clone: filepath.Join(dir, "clone"), dir: filepath.Join(dir, "files"), log: out}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return err
	}
	if err := r.checkout(ctx, o.source); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(context.Context) error { return r.writeNotes(o.unreleased) },
		r.build,
		r.pack,
		func(context.Context) error { return r.writeDocuments() },
		func(ctx context.Context) error { return r.sign(ctx, o.key) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(os.RemoveAll(o.output), os.Rename(r.dir, o.output)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s of commit %s is in %s\n", o.version, r.revision, o.output)
	return err
}
