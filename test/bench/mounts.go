package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// mounter compares pkg/mounter, called from this process, with the programs
// that others execute.
func (b *bench) mounter() ([]row, error) {
	dir := filepath.Join(b.node.dir, "bound")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	mount, umount := program{env: b.node.empty.env}, program{env: b.node.empty.env}
	for name, p := range map[string]*program{"mount": &mount, "umount": &umount} {
		path, err := find(name)
		if err != nil {
			return nil, err
		}
		p.path = path
	}
	pairs, err := b.compare(100, func() (cost, error) { return b.bindInProcess(dir) }, func() (cost, error) {
		up, err := mount.call("--bind", b.node.shared, dir)
		if err != nil {
			return up, err
		}
		down, err := umount.call(dir)
		return up.plus(down), err
	})
	if err != nil {
		return nil, err
	}
	return []row{{
		what: "bind, unmount: pkg/mounter : mount(8), umount(8)", figure: ratio(pairs, wall), unit: "x", goal: atMost(0.05), note: times(pairs, wall),
	}}, nil
}

func find(name string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s in /usr/bin, /bin, /usr/sbin, /sbin", name)
}

// inARow is how often something is done that is over too soon for its time to
// mean much: a wake-up of another thread is most of it.
const inARow = 5

// bindInProcess returns the mean of a few times.
func (b *bench) bindInProcess(dir string) (cost, error) {
	var m mounter.Mounter
	ctx := context.Background()
	start := time.Now()
	for range inARow {
		t, err := mounter.OpenTarget("", dir)
		if err != nil {
			return cost{}, err
		}
		if err := m.Bind(ctx, b.node.shared, mounter.Roots{Below: []string{mounter.Anywhere}}, t, nil, nil); err != nil {
			return cost{}, err
		}
		if err := m.Unmount(ctx, t); err != nil {
			return cost{}, err
		}
		if err := t.Close(); err != nil {
			return cost{}, err
		}
	}
	return cost{wall: time.Since(start) / inARow}, nil
}

// table compares calls with few and with many entries in the mount table, in
// two mount namespaces. What grows with the table by itself is Go's runtime: at
// each start it reads the beginning of the table to find its cgroup.
func (b *bench) table() ([]row, error) {
	if err := mountMemory(b.imageDir()); err != nil {
		return nil, err
	}
	defer func() { _ = unix.Unmount(b.imageDir(), unix.MNT_DETACH) }()
	few, many, closeBoth, err := twoNamespaces()
	if err != nil {
		return nil, err
	}
	defer closeBoth()
	if err := few.do(leaveFew); err != nil {
		return nil, err
	}
	if err := many.do(func() error { return mountMany(filepath.Join(b.node.dir, "many"), b.scale.mounts) }); err != nil {
		return nil, err
	}
	note, err := countBoth(few, many)
	if err != nil {
		return nil, err
	}
	rows, err := b.compareTables("bind", few, many, 300, b.node.bindVolume)
	if err != nil {
		return nil, err
	}
	rows[0].note += note
	if unix.Access("/dev/loop-control", unix.R_OK|unix.W_OK) != nil {
		return rows, nil // loop devices are for root only
	}
	image, err := b.compareTables("disk image", few, many, 60, b.imageVolume)
	return append(rows, image...), err
}

func (b *bench) compareTables(what string, few, many *namespace, rounds int, make func(pod string) (volume, error)) ([]row, error) {
	in := func(n *namespace, pod string) (measurement, error) {
		v, err := make(pod)
		return func() (c cost, err error) {
			err = n.do(func() error { c, err = v.cycle(); return err })
			return c, err
		}, err
	}
	inMany, errMany := in(many, "pod-many-"+what[:4])
	inFew, errFew := in(few, "pod-few-"+what[:4])
	if err := errors.Join(errMany, errFew); err != nil {
		return nil, err
	}
	pairs, err := b.compare(rounds, inMany, inFew)
	if err != nil {
		return nil, err
	}
	what += ", up and down: 10,000 mounts : few, "
	return []row{
		{what: what + "wall", figure: ratio(pairs, wall), unit: "x", goal: atMost(1.1), note: times(pairs, wall)},
		{what: what + "CPU", figure: ratio(pairs, cpu), unit: "x", goal: atMost(1.1), note: times(pairs, cpu)},
	}, nil
}

// imageDir is in memory: a disk that others use as well would be most of what
// is measured.
func (b *bench) imageDir() string { return b.node.images() }

// imageVolume is a disk image of its own; the first mount formats it.
func (b *bench) imageVolume(pod string) (volume, error) {
	return b.node.volume(pod, fmt.Sprintf(`"image":%q,"size":"64Mi","kubernetes.io/fsType":"ext4","kubernetes.io/pod.namespace":"default"`, filepath.Join(b.imageDir(), "default", pod+".img")))
}

func mountMemory(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	return nil
}

// leaveFew removes from this namespace what the calls do not need.
func leaveFew() error {
	for _, dir := range []string{"/sys/fs/cgroup", "/dev/shm", "/dev/mqueue", "/dev/hugepages", "/proc/sys/fs/binfmt_misc", "/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/pstore", "/sys/fs/bpf"} {
		_ = unix.Unmount(dir, unix.MNT_DETACH) // the fewer the better
	}
	return nil
}

// mountMany fills the mount table of this namespace.
func mountMany(dir string, count int) error {
	if err := mountMemory(dir); err != nil {
		return err
	}
	for i := range count {
		at := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("make mount %d of %d: %w", i, count, err)
		}
	}
	return nil
}

func countBoth(few, many *namespace) (string, error) {
	var counts [2]int
	for i, n := range []*namespace{many, few} {
		err := n.do(func() error {
			infos, err := os.ReadFile("/proc/thread-self/mountinfo")
			for _, c := range infos {
				if c == '\n' {
					counts[i]++
				}
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("; %d : %d entries", counts[0], counts[1]), nil
}
