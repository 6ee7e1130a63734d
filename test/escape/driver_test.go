package escape

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// A driver is flexdriver, installed in one of the ways that there are.
type driver struct {
	name    string // vendor/name
	program string // in the plugin directory
	binary  string // what that leads to
	rooted  bool   // there are roots, and types of sources; else volumes may be memory only
	// isBounded: the images of a namespace have bounds, too.
	isBounded bool
	// refusal is what the driver does if it sets up anything at all.
	refusal string
	socket  string // of the daemon, with the backend csi
}

func (d *driver) escaped() string { return strings.Replace(d.name, "/", "~", 1) }

// state begins the names of the files that the driver may write next to itself: who has
// attached what (internal/lease).
func (d *driver) state() string { return filepath.Dir(d.program) + "/.attached-" }

// install installs all drivers with flexdriver install, by their place in drivers.
func (w *world) install() error {
	bound := []string{"--max-size", strconv.Itoa(largest)}
	rooted := slices.Concat(bound, []string{
		"--image-root", w.images, "--device-root", w.devicesDir, "--device-root", "/dev/disk", "--directory-root", w.directories,
		"--log-file", w.log, "--log-level", "debug",
	}, timeouts("4s", "mount", "mountdevice", "expandfs", "expandvolume"), timeouts("1s", "waitforattach"))
	for _, fsType := range sourceTypes() {
		rooted = append(rooted, "--source-type", fsType)
	}
	share := []string{"--max-size-per-namespace", strconv.Itoa(mostSize), "--max-images-per-namespace", strconv.Itoa(most)}
	socket, state := w.dir+"/run/daemon.sock", w.dir+"/run/state"
	csi := []string{"--backend", "csi", "--state-dir", state, "--socket"}
	// It waits for a daemon that does not come.
	absent := append(append(slices.Clone(csi), w.dir+"/run/none.sock"), timeouts("1s", "mount", "mountdevice", "unmount", "unmountdevice", "attach", "isattached", "detach", "waitforattach", "expandfs", "expandvolume")...)
	if err := errors.Join(os.MkdirAll(state, 0o700), w.serve(socket)); err != nil {
		return err
	}
	for _, d := range []struct {
		driver
		flags []string
	}{
		{driver{name: vendor + "/closed"}, bound},
		{driver{name: vendor + "/rooted", rooted: true, isBounded: true}, append(share, rooted...)},
		{driver{name: vendor + "/attach", rooted: true}, append([]string{"--attach"}, rooted...)},
		{driver{name: vendor + "/served", socket: socket}, append(csi, socket)},
		{driver{name: vendor + "/alone", socket: w.dir + "/run/none.sock"}, absent},
		{driver{name: vendor + "/bare"}, append([]string{"--attach"}, bound...)},
	} {
		args := append([]string{"install", "--driver", d.name, "--volume-plugin-dir", w.plugins, "--kubelet-dir", w.kubelet}, d.flags...)
		if _, err := run(w.binary, args...); err != nil {
			return err
		}
		if err := w.add(d.driver); err != nil {
			return err
		}
	}
	return w.loosen()
}

func timeouts(limit string, commands ...string) (flags []string) {
	for _, command := range commands {
		flags = append(flags, "--timeout", command+"="+limit)
	}
	return flags
}

func (w *world) add(d driver) (err error) {
	d.program = filepath.Join(w.plugins, d.escaped(), filepath.Base(d.name))
	d.binary, err = filepath.EvalSymlinks(d.program)
	w.drivers = append(w.drivers, &d)
	return err
}

// loosen makes drivers with the configuration of the one with roots, and one thing wrong:
// others than root have written it, or could, or could change what its roots are.
func (w *world) loosen() error {
	from := w.drivers[rooted]
	config, err := os.ReadFile(filepath.Join(filepath.Dir(from.program), driverconfig.FileName))
	if err != nil {
		return err
	}
	writable := func(name string) driver {
		return driver{name: vendor + "/" + name, refusal: "obeys a configuration that others can write to (" + name + ")"}
	}
	for _, l := range []struct {
		driver
		roots, now string
		loosen     func(dir, file string) error
	}{
		{writable("mode"), "", "", func(_, file string) error { return os.Chmod(file, 0o666) }},
		{writable("owner"), "", "", func(_, file string) error { return os.Chown(file, 1000, 1000) }},
		{writable("directory"), "", "", func(dir, _ string) error { return os.Chmod(dir, 0o777) }},
		{driver{name: vendor + "/parent", rooted: true}, w.roots, w.otherRoots, nil},
		{driver{name: vendor + "/link", rooted: true}, w.roots, w.linkedRoots, nil},
		{driver{name: vendor + "/alias", rooted: true}, w.directories, w.alias, nil},
	} {
		dir := filepath.Join(w.plugins, l.escaped())
		file := filepath.Join(dir, driverconfig.FileName)
		own := bytes.ReplaceAll(config, []byte(from.name), []byte(l.name))
		if l.roots != "" {
			own = bytes.ReplaceAll(own, []byte(`"`+l.roots), []byte(`"`+l.now))
		}
		err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(file, own, 0o644), os.Link(from.binary, filepath.Join(dir, filepath.Base(l.name))), w.add(l.driver))
		if err == nil && l.loosen != nil {
			err = l.loosen(dir, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serve is a daemon that takes every call and says one of three things to it: the
// truth, nothing, or garbage with a canary that must not become part of the answer.
func (w *world) serve(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	w.cleanups = append(w.cleanups, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.answer(c)
		}
	}()
	return nil
}

// answer has the same answer for the same call, whichever world it is in.
func (w *world) answer(c net.Conn) {
	defer c.Close()
	line, err := bufio.NewReader(c).ReadBytes('\n')
	var request struct {
		ID   string
		Argv []string
	}
	if err != nil || json.Unmarshal(line, &request) != nil {
		return
	}
	h := fnv.New32a()
	h.Write([]byte(strings.ReplaceAll(strings.Join(request.Argv, " "), w.dir, "")))
	switch h.Sum32() % 5 {
	case 0, 1, 2:
		fmt.Fprintf(c, `{"version":1,"id":%q,"status":{"status":"Success"}}`+"\n", request.ID)
	case 3:
		fmt.Fprint(c, strings.Repeat("garbage ", 100)+"\n")
	}
}
