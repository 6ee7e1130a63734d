package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	buildversion "github.com/flex2csi/flex2csi/internal/version"
)

// A command talks to people: it writes to w and returns what went wrong.
type command func(args []string, w io.Writer) error

func help(_ []string, w io.Writer) error {
	_, err := fmt.Fprintf(w, `Usage: flexdriver [flags] CALLOUT ARGUMENT...

flexdriver is a FlexVolume driver: for local and network volumes by itself, and
for those of CSI drivers with the daemon flex2csi.

The kubelet calls it:

    flexdriver init
    flexdriver attach|isattached JSON NODE      flexdriver detach VOLUME NODE
    flexdriver waitforattach DEVICE JSON        flexdriver getvolumename JSON
    flexdriver mountdevice DIR DEVICE JSON      flexdriver unmountdevice DIR
    flexdriver mount DIR JSON                   flexdriver unmount DIR
    flexdriver expandfs JSON DEVICE DIR NEWSIZE OLDSIZE
    flexdriver expandvolume JSON DIR NEWSIZE OLDSIZE

Each answers with one JSON object on stdout and exit status 0.

People call it:

    flexdriver install   --driver VENDOR/NAME --volume-plugin-dir DIR [flags]
    flexdriver uninstall --driver VENDOR/NAME --volume-plugin-dir DIR [flags]
    flexdriver version

The first two say more with --help.

A volume by hand, without Kubernetes and without installing:

    dir=/tmp/kubelet/pods/1/volumes/example.com~disk/data
    mkdir -p $dir /srv/images
    flexdriver --backend=local --image-root /srv/images mount $dir \
      '{"image":"/srv/images/default/data.img","size":"1Gi",
        "kubernetes.io/fsType":"ext4","kubernetes.io/pod.namespace":"default"}'
    flexdriver unmount $dir

Flags, for people, stand before the callout:

%s`, program().FlagSet().FlagUsagesWrapped(80))
	return err
}

func versionFlags(w io.Writer) *pflag.FlagSet {
	set := pflag.NewFlagSet("version", pflag.ContinueOnError)
	set.SetOutput(w)
	set.Usage = func() { fmt.Fprint(w, "Usage: flexdriver version\n\nPrint what this is.\n") }
	return set
}

func version(args []string, w io.Writer) error {
	switch err := versionFlags(w).Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	_, err := fmt.Fprintln(w, buildversion.Get().Text("flexdriver"))
	return err
}
