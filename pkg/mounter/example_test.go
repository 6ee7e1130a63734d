package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// directories is a whole FlexVolume driver: a volume is a directory below store. What is
// missing to a binary:
//
//	func main() { os.Exit(flex.Main(directories("/srv/volumes"))) }
func directories(store string) *flex.Driver {
	return &flex.Driver{
		// The directory's owner decides on its group and label, not the pod.
		Capabilities: flex.Capabilities{SupportsMetrics: true, RequiresFSResize: true},
		Callouts:     []flex.Command{flex.CommandMount, flex.CommandUnmount, flex.CommandExpandFS},
		Handle: func(ctx context.Context, call *flex.Call) (flex.DriverStatus, error) {
			switch call.Command {
			case flex.CommandMount:
				return flex.Success(), bindDirectory(ctx, store, call)
			case flex.CommandUnmount:
				return flex.Success(), unmountDirectory(ctx, call)
			}
			return flex.DriverStatus{}, flex.Errorf(flex.CodeFailedPrecondition, "a directory has no size of its own")
		},
	}
}

func bindDirectory(ctx context.Context, store string, call *flex.Call) error {
	name := call.Options.User["directory"]
	if name == "." || name == ".." || name != filepath.Base(name) { // not the store itself
		return flex.Errorf(flex.CodeInvalidArgument, `the option "directory" must name a directory in %s`, store)
	}
	target, err := mounter.OpenTarget("", call.Dir)
	if err != nil {
		return err
	}
	defer target.Close()
	if mounted, err := target.Mounted(); mounted || err != nil {
		return err // the kubelet calls again after a call that succeeded, too
	}
	options := []string{"nosuid", "nodev"}
	if call.Options.ReadOnly {
		options = append(options, "ro")
	}
	m := mounter.Mounter{Log: flex.Log(ctx)}
	// The root keeps symbolic links of the store from leading elsewhere.
	return m.Bind(ctx, filepath.Join(store, name), mounter.Roots{Below: []string{store}}, target, options, nil)
}

func unmountDirectory(ctx context.Context, call *flex.Call) error {
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
	for _, options := range []string{`{"kubernetes.io/readwrite":"rw"}`, `{"kubernetes.io/readwrite":"rw","directory":"../etc"}`, `{"kubernetes.io/readwrite":"rw","directory":"."}`} {
		status := flex.Run(context.Background(), directories("/srv/volumes"), []string{"mount", "/pods/1/volumes/data", options})
		fmt.Printf("%s", status.Encode())
	}
	// Output:
	// {"status":"Failure","message":"the option \"directory\" must name a directory in /srv/volumes"}
	// {"status":"Failure","message":"the option \"directory\" must name a directory in /srv/volumes"}
	// {"status":"Failure","message":"the option \"directory\" must name a directory in /srv/volumes"}
}
