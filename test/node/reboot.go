package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BootID is what /proc/sys/kernel/random/boot_id says in the node. In a
// container, which has a /proc of its own, it says what the machine's kernel
// says; one with the node's / as a volume finds the node's there.
func BootID() (string, error) {
	id, err := os.ReadFile(bootIDFile)
	return strings.TrimSpace(string(id)), err
}

// Reboot has the node end without a warning and come up again, while the control
// plane, which one thinks of as another machine, stays. Gone are all processes
// of pods, all mounts, loop devices and what is in /run; files on disks and the
// objects in the API stay, and boot_id is another one.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.PowerOff(); err != nil {
		return err
	}
	if err := n.forget(); err != nil {
		return fmt.Errorf("reboot the node: %w", err)
	}
	return n.PowerOn(ctx)
}

// PowerOff is the first half of Reboot: kubelet, containerd and pods end.
func (n *Node) PowerOff() error {
	n.Kubelet.Kill()
	n.Containerd.Kill()
	return n.killPods()
}

// PowerOn is the last part of Reboot: containerd and kubelet start.
func (n *Node) PowerOn(ctx context.Context) error {
	started := metav1.Now()
	if err := inTurn(n.Containerd.Start, n.Kubelet.Start); err != nil {
		return err
	}
	if err := n.waitHeartbeat(ctx, started); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// forget takes away what does not outlive a machine's end.
func (n *Node) forget() error {
	if err := unmountSince(); err != nil {
		return err
	}
	if err := detachLoops(n.dir); err != nil {
		return err
	}
	if err := empty("/run"); err != nil {
		return err
	}
	if err := os.Mkdir("/run/lock", 0o1777); err != nil {
		return err
	}
	deleteBridge()
	if err := cgroups(n.dir).removePods(); err != nil {
		return err
	}
	return newBootID()
}

// isNodes says whether something is mounted at a path that belongs to the node
// for as long as it exists.
func isNodes(path string) bool {
	_, own := owned()[path]
	return own || path == "/run"
}

// unmountSince unmounts what is below the directories of the node.
func unmountSince() error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		below := slices.ContainsFunc([]string{"/run/", "/var/lib/", "/var/log/", "/usr/libexec/kubernetes/"}, func(dir string) bool {
			return strings.HasPrefix(m.Mountpoint, dir)
		})
		return !below || isNodes(m.Mountpoint), false
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) { // the last one lies on top
		err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it went with another
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// deleteBridge deletes the bridge of pods, if there is one. The interfaces on it
// have gone with the network namespaces of their pods.
func deleteBridge() {
	if setFlags(bridge, 0) != nil {
		return // no pod has been there
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(s)
	_ = deleteBridgeOn(s) // CNI takes an old one as well
}

// newBootID is a random UUID, as the kernel's.
func newBootID() error {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x\n", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
	return os.WriteFile(bootIDFile, []byte(id), 0)
}

// waitHeartbeat waits until the kubelet has said how it is, after a time: until
// then the node is as ready as it was.
func (n *Node) waitHeartbeat(ctx context.Context, after metav1.Time) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Await(ctx, "the kubelet to say how it is", func(ctx context.Context) error {
		node, err := n.client.CoreV1().Nodes().Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		id, err := BootID()
		if err != nil {
			return err
		}
		if node.Status.NodeInfo.BootID != id {
			return errors.New("not yet")
		}
		for _, c := range node.Status.Conditions {
			if c.LastHeartbeatTime.Before(&after) {
				return errors.New("not yet")
			}
		}
		return nil
	})
}
