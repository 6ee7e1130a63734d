package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// network is a volume that a program mount.<fsType> mounts.
func network(fsType, source string) kind {
	return kind{
		name: fsType, fsType: fsType, size: "64Mi", mounted: fsType, needs: []string{"root"}, shared: true,
		options: func(*node, string) map[string]string { return map[string]string{"source": source} },
	}
}

// mountProgram puts a program into the directory of mount programs, where
// mount(8) looks for them, in this mount namespace only, until remove is called.
func (n *node) mountProgram(name, script string) (remove func()) {
	n.t.Helper()
	sbin, err := filepath.EvalSymlinks("/sbin")
	n.must(err)
	layer := filepath.Join(n.work, "sbin")
	n.must(os.MkdirAll(layer, 0o755))
	n.mountTmpfs(layer, "") // because the work directory may be an overlay itself
	for _, dir := range []string{"upper", "work"} {
		n.must(os.Mkdir(filepath.Join(layer, dir), 0o755))
	}
	n.must(os.WriteFile(filepath.Join(layer, "upper", name), []byte("#!/bin/sh\n"+script), 0o755))
	n.must(unix.Mount("overlay", sbin, "overlay", 0,
		fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%[2]s/work", sbin, layer)))
	remove = sync.OnceFunc(func() { n.must(unix.Unmount(sbin, unix.MNT_DETACH)) })
	n.t.Cleanup(remove)
	return remove
}

// TestFUSEServerOutlivesTheCallThatStartedIt, and neither delays its answer nor
// gets into it, though it keeps stdout and stderr open.
func TestFUSEServerOutlivesTheCallThatStartedIt(t *testing.T) {
	for _, attach := range []bool{false, true} {
		t.Run(fmt.Sprintf("attach=%t", attach), func(t *testing.T) {
			need(t, "fuse")
			n := newNode(t, attach)
			n.mountProgram("mount.fuse.fake", envRole+"=fuse-helper exec "+self()+` "$@"`)
			v, a, b := n.newVolume(network("fuse.fake", "fake"), "pv-1"), newPod("a"), newPod("b")
			n.attach(v)
			for _, pod := range []*v1.Pod{a, b} {
				n.must(n.mount(v, pod))
				if c := n.runner.last(t, "mount"); c.end.Sub(c.start) > 10*time.Second {
					t.Errorf("mount took %v", c.end.Sub(c.start))
				}
			}
			for _, pod := range []*v1.Pod{a, b} {
				v.checkMounted(v.dir(pod))
				if _, err := os.ReadDir(v.dir(pod)); err != nil {
					t.Errorf("the server is dead: %v", err)
				}
			}
			n.takeDown(v, a, b)
			n.checkNoServer()
		})
	}
}

// checkNoServer fails unless the servers of all FUSE mounts have ended.
func (n *node) checkNoServer() {
	n.t.Helper()
	eventually(n.t, "the FUSE servers have ended", func() bool { return len(children(n.t)) == 0 })
}

// TestFUSEServerThatDiesLeavesARemovableMount: the pod's volume is broken, and
// the pod can still end.
func TestFUSEServerThatDiesLeavesARemovableMount(t *testing.T) {
	need(t, "fuse")
	n := newNode(t, false)
	n.mountProgram("mount.fuse.fake", envRole+"=fuse-helper exec "+self()+` "$@"`)
	v, a, b := n.newVolume(network("fuse.fake", "fake"), "pv-1"), newPod("a"), newPod("b")
	n.must(n.mount(v, a))
	for _, pid := range children(t) {
		n.must(unix.Kill(pid, unix.SIGKILL))
	}
	n.checkNoServer()
	if _, err := os.ReadDir(v.dir(a)); err == nil {
		t.Error("a directory without server can be read")
	}
	n.must(n.mount(v, b))
	n.takeDown(v, a, b)
	n.checkNoServer()
}

// TestFailingMountProgram: its words, without the secret in them, become the
// pod's event; the secret reaches it through a private file; a
// process that it leaves behind does not delay the answer.
func TestFailingMountProgram(t *testing.T) {
	need(t, "setpriv")
	begin := time.Now().Add(-time.Second)
	n := newNode(t, false)
	out := filepath.Join(n.work, "program")
	n.must(os.Mkdir(out, 0o755))
	n.mountProgram("mount.cifs", strings.ReplaceAll(`
echo "$@" >$OUT/args
env >$OUT/env
for option in $(echo "$4" | tr , ' '); do
	case $option in credentials=*|cred=*) file=${option#*=} ;; esac
done
echo "$file" >$OUT/name
password=$(setpriv --bounding-set=-all --inh-caps=-all sed -n 's/^password=//p' "$file")
printf %s "$password" | od -An -v -tx1 | tr -d ' \n' >$OUT/password
sleep 300 &
echo $! >$OUT/pid
echo "mount error(13): Permission denied, I tried $password" >&2
exit 32
`, "$OUT", out))
	v, pod, secret := n.newVolume(network("cifs", "//server/share"), "pv-1"), newPod("a"), randomSecret()
	n.newSecret(v, v1.SecretType(driverName), map[string]string{"username": "user", "password": secret})
	err := n.mount(v, pod)
	if err == nil || !strings.Contains(err.Error(), "Permission denied") {
		t.Errorf("mount: %v, want the words of the program", err)
	}
	if c := n.runner.last(t, "mount"); c.end.Sub(c.start) > 10*time.Second {
		t.Errorf("mount took %v", c.end.Sub(c.start))
	}
	n.checkNoSecret(secret, begin, fmt.Sprint(err)) // the arguments and the environment are files here
	read := func(name string) string {
		body, err := os.ReadFile(filepath.Join(out, name))
		n.must(err)
		return strings.TrimSpace(string(body))
	}
	if got, want := read("password"), fmt.Sprintf("%x", secret); got != want {
		t.Errorf("the program read the password %s, want %s", got, want)
	}
	if name := read("name"); !strings.HasPrefix(name, "/proc/") && !strings.HasPrefix(name, "/dev/fd/") && exists(name) {
		t.Errorf("the file with the password is still there: %s", name)
	}
	pid, err := strconv.Atoi(read("pid"))
	n.must(err)
	_ = unix.Kill(pid, unix.SIGKILL) // a driver may end it, a server's driver must not
	checkFailedSetup(n, v, pod)
}
