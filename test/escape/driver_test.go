package escape

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// A driver is flexdriver, installed in one of the ways that there are.
type driver struct {
	name    string // vendor/name
	program string // in the plugin directory
	binary  string // what that leads to
	rooted  bool   // there are roots, and types of sources; else volumes may be memory only
	socket  string // of the daemon, with the backend csi
}

func (d *driver) escaped() string { return strings.Replace(d.name, "/", "~", 1) }

// state begins the names of the files that the driver may write next to itself: who has
// attached what (internal/lease).
func (d *driver) state() string { return filepath.Dir(d.program) + "/.attached-" }

// install installs all drivers with flexdriver install.
func (w *world) install() error {
	rooted := []string{
		"--image-root", w.images, "--device-root", w.devicesDir, "--directory-root", w.directories,
		"--timeout", "mount=4s", "--timeout", "mountdevice=4s", "--timeout", "waitforattach=1s", "--timeout", "expandfs=4s",
	}
	for _, fsType := range sourceTypes() {
		if w.knows("--source-type") {
			rooted = append(rooted, "--source-type", fsType)
		}
	}
	var bound []string
	if w.knows("--max-size") {
		bound = []string{"--max-size", strconv.FormatInt(w.largest(), 10)}
	}
	if w.knows("--max-size-per-namespace") { // or it would hide an image that is too large
		bound = append(bound, "--max-size-per-namespace", "4Ei", "--max-images-per-namespace", "1000000")
	}
	rooted = append(rooted, bound...)
	socket, state := w.dir+"/run/daemon.sock", w.dir+"/run/state"
	if err := errors.Join(os.MkdirAll(state, 0o700), w.serve(socket)); err != nil {
		return err
	}
	for _, d := range []struct {
		driver
		flags []string
	}{
		{driver{name: vendor + "/closed"}, bound},
		{driver{name: vendor + "/rooted", rooted: true}, rooted},
		{driver{name: vendor + "/attach", rooted: true}, append([]string{"--attach"}, rooted...)},
		{driver{name: vendor + "/served", socket: socket}, []string{"--backend", "csi", "--socket", socket, "--state-dir", state}},
		{driver{name: vendor + "/alone", socket: w.dir + "/run/none.sock"}, []string{"--backend", "csi", "--socket", w.dir + "/run/none.sock", "--state-dir", state}},
	} {
		args := append([]string{"install", "--driver", d.name, "--volume-plugin-dir", w.plugins, "--kubelet-dir", w.kubelet}, d.flags...)
		if out, err := exec.Command(w.binary, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("flexdriver %s: %w: %s", strings.Join(args, " "), err, out)
		}
		d.program = filepath.Join(w.plugins, d.escaped(), filepath.Base(d.name))
		var err error
		if d.binary, err = filepath.EvalSymlinks(d.program); err != nil {
			return err
		}
		w.drivers = append(w.drivers, &d.driver)
	}
	return nil
}

// knows reports whether install takes a flag.
func (w *world) knows(flag string) bool {
	out, _ := exec.Command(w.binary, "install", "--help").CombinedOutput()
	return strings.Contains(string(out), flag)
}

// serve is a daemon that takes every call and has something else to say to each: the
// truth, nothing, or garbage with a canary that must not become part of the answer.
func (w *world) serve(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c, n)
		}
	}()
	return nil
}

func answer(c net.Conn, n int) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadBytes('\n')
	var request struct{ ID string }
	if err != nil || json.Unmarshal(line, &request) != nil {
		return
	}
	switch n % 5 {
	case 0, 1, 2:
		fmt.Fprintf(c, `{"version":1,"id":%q,"status":{"status":"Success"}}`+"\n", request.ID)
	case 3:
		fmt.Fprint(c, strings.Repeat("garbage ", 100)+"\n")
	}
}
