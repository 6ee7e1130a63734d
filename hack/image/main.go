// Command image writes an image of files as an OCI archive: a tar of an OCI
// image layout, as docker load, podman load, skopeo and ctr images import read
// it. No container engine is needed, and the same files give the same bytes.
//
//	image -o FILE --name REF [flags] --file DEST=SRC...
//
// There is no base image and so nothing in the image that is not given. In SRC
// and in the files of --attach and --sbom, {os} and {arch} stand for the platform.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	err := run(os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH"), os.Stdout)
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the archive and prints its digest. epoch is the time of the image,
// in seconds, as https://reproducible-builds.org/specs/source-date-epoch has it.
func run(args []string, epoch string, out io.Writer) error {
	var s spec
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	flags.SetOutput(out)
	file := flags.StringP("output", "o", "", "the `FILE` to write")
	flags.StringVar(&s.name, "name", "", "the image's reference, as REGISTRY/NAME:TAG")
	flags.StringSliceVar(&s.platforms, "platform", nil, "`OS/ARCH`; with more than one the image is an index (default: this machine's)")
	flags.StringArrayVar(&s.files, "file", nil, "`DEST=SRC[:MODE]`, a file, or a directory with all that is in it")
	flags.StringArrayVar(&s.links, "link", nil, "`DEST=TARGET`, a symbolic link")
	flags.StringVar(&s.user, "user", "", "`UID[:GID]` that the program runs as (default root)")
	flags.StringArrayVar(&s.entrypoint, "entrypoint", nil, "the program; once for each word of it")
	flags.StringArrayVar(&s.cmd, "cmd", nil, "its arguments where a pod gives none; once for each word")
	flags.StringArrayVar(&s.env, "env", nil, "`NAME=VALUE`")
	flags.StringToStringVar(&s.labels, "label", nil, "`NAME=VALUE`, a label of the image and an annotation of the index")
	flags.StringArrayVar(&s.attachments, "attach", nil, "`TYPE=FILE`, a document about the image, such as an SBOM, as its referrer")
	flags.StringVar(&s.sbomFile, "sbom", "", "write what the programs are made of to this `FILE`, and attach it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *file == "" || s.name == "" || len(s.files) == 0 || flags.NArg() > 0 {
		return errors.New("needs -o FILE, --name REF and --file DEST=SRC, and takes no arguments")
	}
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		s.created = time.Unix(seconds, 0).UTC()
	} else {
		s.created = time.Unix(0, 0).UTC()
	}
	digest, err := s.write(*file)
	if err != nil {
		return fmt.Errorf("write %s: %w", *file, err)
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", s.name, digest)
	return err
}
