package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// killed shows that a driver which dies half-way leaves nothing that the next
// call does not put right.
func (t *story) killed() {
	t.Part("kill -9 in the middle of a mount")
	dir := t.pod("pod-k")
	t.Scene("The driver dies while mkfs is at work: out of memory, or a mistake.")
	disk := t.killInMkfs(dir)
	t.unseen(dir)
	content, err := t.unfinished(disk)
	t.Verify(err, "left", "no mount, no loop device; an image of 8 GiB %s", content)
	t.Scene("The kubelet calls again, as it would. Nothing has to be cleaned up first.")
	t.mountAgain(dir, disk)
	t.shows(dir, "ext4", "rw")
	t.writes(dir, "alive.txt", "as if nothing had happened")
	t.unmount(dir)
	t.released()
}

// killInMkfs kills a mount in its mkfs, and returns what was to be mounted. On a
// machine that is too fast for that it tries again with another image.
func (t *story) killInMkfs(dir string) volume {
	const attempts = 20
	for i := range attempts {
		if t.Failed != nil {
			break
		}
		disk := volume{image: fmt.Sprintf("kill%d.img", i), size: "8Gi", fsType: "ext4"}
		took, caught, err := t.killOnce(dir, disk)
		if err != nil {
			t.Fail("kill a mount: %w", err)
			break
		}
		if !caught {
			continue
		}
		t.count(answer{took: took})
		t.Screen.Call("disk mount", t.node.short(dir)+" "+disk.String(), "kill -9", screen.Yellow, took)
		return disk
	}
	t.Fail("in %d attempts no mount could be killed while it formatted", attempts)
	return volume{}
}

// killOnce is not caught if the mount was done first; then it is undone.
func (t *story) killOnce(dir string, disk volume) (took time.Duration, caught bool, err error) {
	cmd := t.node.command(t.node.driver(), "mount", dir, t.argument(disk))
	var out bytes.Buffer
	cmd.Stdout = &out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, false, err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	for !caught {
		select {
		case <-done:
			if !bytes.Contains(out.Bytes(), []byte(`"Success"`)) {
				return 0, false, fmt.Errorf("it answered %s", bytes.TrimSpace(out.Bytes()))
			}
			_, err := t.node.call("unmount", dir)
			return 0, false, errors.Join(err, os.Remove(t.node.imagePath(disk)))
		default:
			caught = childOf(cmd.Process.Pid) == "mkfs.ext4"
		}
	}
	err = cmd.Process.Kill()
	took = time.Since(start)
	<-done
	return took, true, err
}

// unfinished says what the killed call has left in its image. What that is
// depends on how far mkfs had come.
func (t *story) unfinished(disk volume) (content string, err error) {
	if t.Failed != nil {
		return "", t.Failed
	}
	if err := t.node.noLoops(); err != nil {
		return "", err
	}
	image := t.node.imagePath(disk)
	if _, err := os.Stat(image); err != nil {
		return "", err
	}
	// It is silent, with status 2, where it finds nothing.
	if out, _ := t.node.command("/bin/sh", "-c", `blkid -p "$0"`, image).Output(); len(out) > 0 {
		return "with an unused filesystem", nil
	}
	return "without a filesystem", nil
}
