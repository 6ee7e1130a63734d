package flex_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
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
		Mount: func(ctx context.Context, call *flex.Call) error {
			share := call.Options.User["share"]
			if share == "" {
				return flex.Errorf(flex.CodeInvalidArgument, `the option "share" is missing: set it to server:/path`)
			}
			access := "rw"
			if call.Options.ReadOnly {
				access = "ro"
			}
			mount := exec.CommandContext(ctx, "mount", "-t", "nfs", "-o", access, "--", share, call.Dir)
			if output, err := mount.CombinedOutput(); err != nil {
				return flex.Errorf(flex.CodeUnavailable, "cannot mount %s: %w: %s", share, err, output)
			}
			return nil
		},
		Unmount: func(_ context.Context, call *flex.Call) error {
			err := unix.Unmount(call.Dir, unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
				return nil // not mounted, as after a reboot: that is success
			}
			return err
		},
	}
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
