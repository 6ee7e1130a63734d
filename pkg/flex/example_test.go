package flex_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// shares is a whole FlexVolume driver for NFS. What is missing to a binary:
//
//	func main() { os.Exit(flex.Main(shares())) }
func shares() *flex.Driver {
	capabilities := flex.DefaultCapabilities()
	capabilities.FSGroup = false // the server says who owns what
	capabilities.SELinuxRelabel = false
	return &flex.Driver{
		Capabilities: capabilities,
		Callouts:     []flex.Command{flex.CommandMount, flex.CommandUnmount, flex.CommandExpandFS},
		Handle: func(ctx context.Context, call *flex.Call) (flex.DriverStatus, error) {
			switch call.Command {
			case flex.CommandMount:
				return flex.Success(), mountShare(ctx, call)
			case flex.CommandUnmount:
				return flex.Success(), unmountShare(ctx, call)
			}
			return flex.DriverStatus{}, flex.Errorf(flex.CodeFailedPrecondition, "the server decides on the size")
		},
	}
}

func mountShare(ctx context.Context, call *flex.Call) error {
	share := call.Options.User["share"]
	if share == "" {
		return flex.Errorf(flex.CodeInvalidArgument, `the option "share" is missing: set it to server:/path`)
	}
	target, err := mounter.OpenTarget("", call.Dir)
	if err != nil {
		return err
	}
	defer target.Close()
	if mounted, err := target.Mounted(); mounted || err != nil {
		return err // the kubelet calls again after a call that succeeded, too
	}
	m := mounter.Mounter{Log: flex.Log(ctx)}
	return m.MountRemote(ctx, mounter.Remote{
		Source:   share,
		FSType:   "nfs",
		Options:  []string{"retry=0"}, // mount.nfs tries for 2 minutes, the kubelet calls again
		ReadOnly: call.Options.ReadOnly,
	}, target)
}

func unmountShare(ctx context.Context, call *flex.Call) error {
	target, err := mounter.OpenTarget("", call.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not mounted: that is success
	}
	if err != nil {
		return err
	}
	defer target.Close()
	m := mounter.Mounter{Log: flex.Log(ctx)}
	return m.Unmount(ctx, target)
}

func Example() {
	for _, args := range [][]string{
		{"init"},
		{"mount", "/pods/1/volumes/nfs", `{"kubernetes.io/readwrite":"rw"}`},
		{"mount", "/pods/1/volumes/nfs"},
		{"unmount", "/pods/1/volumes/nfs"},
		{"attach", `{}`, "node-1"},
	} {
		status := flex.Run(context.Background(), shares(), args)
		fmt.Printf("%s", status.Encode())
	}
	// Output:
	// {"status":"Success","capabilities":{"attach":false,"selinuxRelabel":false,"fsGroup":false,"supportsMetrics":true,"requiresFSResize":true}}
	// {"status":"Failure","message":"the option \"share\" is missing: set it to server:/path"}
	// {"status":"Failure","message":"mount: got 1 arguments, want 2: the JSON options are missing; usage: mount <directory> <JSON options>"}
	// {"status":"Success"}
	// {"status":"Not supported","message":"attach is not something that this driver does"}
}
