package install

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// prober watches a plugin directory as the kubelet does: with the mask of
// github.com/fsnotify/fsnotify, on the plugin directory and on each driver's
// directory that it sees appear.
type prober struct {
	t         *testing.T
	pluginDir string
	fd        int
	watches   map[int32]string
	root      int32 // the watch of the plugin directory
}

func newProber(t *testing.T, pluginDir string) *prober {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	p := &prober{t: t, pluginDir: pluginDir, fd: fd, watches: map[int32]string{}}
	p.root = p.watch("")
	return p
}

// watch ignores what is no directory.
func (p *prober) watch(dir string) (wd int32) {
	p.t.Helper()
	w, err := unix.InotifyAddWatch(p.fd, filepath.Join(p.pluginDir, dir), unix.IN_MOVED_TO|unix.IN_MOVED_FROM|
		unix.IN_CREATE|unix.IN_ATTRIB|unix.IN_MODIFY|unix.IN_MOVE_SELF|unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_ONLYDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
		p.t.Fatal(err)
	}
	if err == nil {
		p.watches[int32(w)] = dir
	}
	return int32(w)
}

// events returns what the prober acts on of what has happened since the last
// call, in fsnotify's words, and how many events of dot-files it ignored
// (pkg/volume/flexvolume/probe.go, handleWatchEvent).
func (p *prober) events() (seen []string, ignored int) {
	p.t.Helper()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(p.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return seen, ignored
		}
		if err != nil {
			p.t.Fatal(err)
		}
		for data := buf[:n]; len(data) > 0; {
			wd := int32(binary.NativeEndian.Uint32(data))
			mask := binary.NativeEndian.Uint32(data[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(data[12:]))
			name := string(bytes.TrimRight(data[unix.SizeofInotifyEvent:end], "\x00"))
			data = data[end:]
			path := filepath.Join(p.watches[wd], name)
			switch {
			case p.watches[wd] == "" && wd != p.root, mask&unix.IN_IGNORED != 0:
				delete(p.watches, wd)
			case mask&unix.IN_MOVE_SELF != 0:
				_, _ = unix.InotifyRmWatch(p.fd, uint32(wd)) // as fsnotify does since 1.8
				delete(p.watches, wd)
			case strings.HasPrefix(filepath.Base(path), ".") && path != ".":
				ignored++
			default:
				seen = append(seen, fsnotifyOp(mask)+" "+path)
				if mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
					p.watch(path)
				}
			}
		}
	}
}

func fsnotifyOp(mask uint32) string {
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		return "CREATE"
	case mask&(unix.IN_DELETE|unix.IN_DELETE_SELF) != 0:
		return "REMOVE"
	case mask&unix.IN_MODIFY != 0:
		return "WRITE"
	case mask&(unix.IN_MOVED_FROM|unix.IN_MOVE_SELF) != 0:
		return "RENAME"
	}
	return "CHMOD"
}

// TestEvents shows what a running kubelet notices of the installer. Each CREATE
// makes it run init once, at the next volume operation of the node; a REMOVE of
// the executable or of the directory makes it forget the driver; dot-files it
// ignores. So an update is one init, and one that changes nothing is none.
func TestEvents(t *testing.T) {
	o := options(t)
	bad := o
	bad.Executable = script(t, "exit 1")
	inPlace := o // works while it is tried, and then no more
	inPlace.Executable = script(t, `case $0 in */disk) exit 1;; *) echo '{"status":"Success"}';; esac`)
	config := o
	config.Config = newConfig()

	const created, dirRemoved = "CREATE " + exeName, "REMOVE " + dirName
	steps := []struct {
		name    string
		run     func(context.Context, Options) (Report, error)
		options Options
		fails   bool
		want    []string
	}{
		{"first install", Install, o, false, []string{"CREATE " + dirName}},
		{"the same again", Install, o, false, nil},
		{"update", Install, updated(t, o), false, []string{created}},
		{"downgrade", Install, o, false, []string{created}},
		{"configuration only", Install, config, false, []string{created}},
		{"update that does not work", Install, bad, true, nil},
		{"update that does not work in place", Install, inPlace, true, []string{created, created}},
		// The directory's is seen twice: by the watch on it and by that above it.
		{"uninstall", Uninstall, o, false, []string{"REMOVE " + exeName, dirRemoved, dirRemoved}},
		{"first install of what does not work", Install, bad, true, nil},
		{"first install again", Install, o, false, []string{"CREATE " + dirName}},
	}
	p := newProber(t, o.PluginDir)
	for _, step := range steps {
		if _, err := step.run(context.Background(), step.options); (err != nil) != step.fails {
			t.Fatalf("%s: error %v", step.name, err)
		}
		seen, ignored := p.events()
		t.Logf("%s: seen %q, ignored %d", step.name, seen, ignored)
		if diff := cmp.Diff(step.want, seen); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestEventsOfCleanup: a kubelet that is started after an installer was killed
// watches the dot-directory that is left. It must not see anything there that it
// would take for a driver.
func TestEventsOfCleanup(t *testing.T) {
	for _, run := range []string{"install", "uninstall"} {
		t.Run(run, func(t *testing.T) {
			for after := 1; ; after++ {
				s := killScenario{op: "install", version: "new/new"}
				o, step := s.killed(t, t.TempDir(), after)
				if step == "" {
					break
				}
				p := newProber(t, o.PluginDir)
				p.watch("." + dirName + ".new")
				p.watch(dirName)
				if _, err := operations()[run](context.Background(), o); err != nil {
					t.Fatal(err)
				}
				seen, _ := p.events()
				for _, event := range seen {
					if strings.Contains(event, ".new") {
						t.Errorf("killed after %d (%s): %s", after, step, event)
					}
				}
			}
		})
	}
}

// TestUninstallOrder: foreign files go while the driver is still there, for the
// kubelet runs init when they do.
func TestUninstallOrder(t *testing.T) {
	o := options(t)
	mustInstall(t, o)
	if err := os.WriteFile(filepath.Join(o.PluginDir, dirName, "jq"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	p := newProber(t, o.PluginDir)
	p.watch(dirName)
	o.Force = true
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	want := []string{"REMOVE " + dirName + "/jq", "REMOVE " + exeName, "REMOVE " + dirName, "REMOVE " + dirName}
	if got, _ := p.events(); !cmp.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}
