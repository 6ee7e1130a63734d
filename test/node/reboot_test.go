package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func testReboot(t *testing.T, n *Node) {
	var before string
	await(t, n, "the container", func(s map[string]string) bool { before = s["container"]; return before != "" })
	id, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	volume := leave(t)
	kept, lost := "/var/lib/flex2csi/kept", "/run/lost"
	for _, f := range []string{kept, lost} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	api := n.APIServer.PID()
	began := time.Now()
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("rebooted after %v", time.Since(began))
	if now, err := BootID(); err != nil || now == id || len(now) != len(id) {
		t.Errorf("boot_id was %q and is %q, %v", id, now, err)
	}
	if exists(lost) || !exists(kept) {
		t.Errorf("%s is there: %v; %s is there: %v", lost, exists(lost), kept, exists(kept))
	}
	if n.APIServer.PID() != api {
		t.Error("the control plane has restarted as well")
	}
	things, err := Look()
	if err != nil || slices.ContainsFunc(things, func(s string) bool { return strings.Contains(s, volume) || strings.Contains(s, "loop") }) {
		t.Errorf("after the reboot there are %q, %v", things, err)
	}
	await(t, n, "another container", func(s map[string]string) bool { return s["container"] != before && s["running"] == "true" })
}

// leave leaves a loop device of an image, mounted below the kubelet's directory,
// and returns where.
func leave(t *testing.T) (volume string) {
	t.Helper()
	image, volume := "/var/lib/volumes/left.img", KubeletDir+"/left"
	for _, argv := range [][]string{
		{"truncate", "--size=16M", image},
		{"mkfs.ext4", "-q", image},
		{"mkdir", "-p", volume},
		{"mount", "-o", "loop", image, volume},
	} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = usualEnv()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	return volume
}

// testLeaks sees what is left, and that it is gone.
func testLeaks(t *testing.T, n *Node) {
	kubectl(t, n, "delete", "pod", "test", "--wait")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	none := func(context.Context) error {
		if left, err := n.Leaks(); err != nil || len(left) > 0 {
			return fmt.Errorf("left: %q, %w", left, err)
		}
		return nil
	}
	if err := Await(ctx, "nothing to be left", none); err != nil {
		t.Fatal(err)
	}
	volume := leave(t)
	if left, err := n.Leaks(); err != nil || len(left) != 2 || !strings.Contains(left[0], volume) || !strings.Contains(left[1], "left.img") {
		t.Errorf("a mount and a loop device: %q, %v", left, err)
	}
	if left, err := n.Leaks(); err != nil || len(left.Without("left")) > 0 {
		t.Errorf("without them: %q, %v", left.Without("left"), err)
	}
	if out, err := exec.CommandContext(t.Context(), "umount", volume).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := Await(ctx, "the loop device to go", none); err != nil {
		t.Error(err)
	}
}
