package onnode_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
)

// TestLeaveController: a socket that is left in the plugin directory is all that
// would remain of flex2csi; one that goes too early has attach: true fail.
func TestLeaveController(t *testing.T) {
	const ours = `{"apiVersion":"flex2csi.io/v1alpha1","kind":"FlexDriverConfiguration","driver":"example.com/disk","backend":"csi",
		"socket":"/run/s","stateDir":"/var/lib/s","capabilities":{"attach":true}`
	for name, test := range map[string]struct {
		socket, config string
		held           bool
		want           bool // that it is gone
	}{
		"no driver":            {socket: ".controller.sock", want: true},
		"of another":           {socket: ".controller.sock", config: ours + `}`, want: true},
		"in use":               {socket: ".controller.sock", config: ours + `,"controllerSocket":"../.controller.sock"}`},
		"another socket":       {socket: ".controller.sock", config: ours + `,"controllerSocket":"../.other.sock"}`, want: true},
		"next to the driver":   {socket: "example.com~disk/.c.sock", config: ours + `,"controllerSocket":".c.sock"}`},
		"from another root":    {socket: ".controller.sock", config: ours + `,"controllerSocket":"/host/.controller.sock"}`},
		"broken":               {socket: ".controller.sock", config: `{`},
		"of a next controller": {socket: ".controller.sock", held: true},
		"elsewhere":            {socket: "controller.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			driver := filepath.Join(dir, "example.com~disk")
			socket := filepath.Join(dir, test.socket)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.Mkdir(driver, 0o755))
			must(os.WriteFile(socket, nil, 0o600))
			must(os.WriteFile(socket+".lock", nil, 0o600))
			if test.config != "" {
				file := filepath.Join(driver, driverconfig.FileName)
				must(os.WriteFile(file, []byte(test.config), 0o600))
				if _, err := driverconfig.Load(file); (err != nil) != (name == "broken") {
					t.Fatalf("the configuration of this test: %v", err)
				}
			}
			if test.held {
				lock, err := hostfile.TryLock(socket + ".lock")
				must(err)
				defer lock.Close()
			}
			left, err := onnode.LeaveController(socket)
			must(err)
			for _, file := range []string{socket, socket + ".lock"} {
				_, err := os.Lstat(file)
				if gone := errors.Is(err, fs.ErrNotExist); left != test.want || gone != test.want {
					t.Errorf("left %t, %s gone %t, want %t", left, file, gone, test.want)
				}
			}
		})
	}
}
