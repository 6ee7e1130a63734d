package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/test/node"
)

// migrateVendors are migrations with a driver of a vendor around.
func migrateVendors() []scenario {
	return []scenario{{
		"migrate-vendor-attached",
		"a vendor's driver with attach: true is still in kube-controller-manager: nothing is migrated under a pod before it was taken out, and nothing is detached",
		migrateVendorAttached,
	}}
}

// vendorScript is the vendor's driver. It writes down each call.
const vendorScript = `#!/bin/sh
echo "$@" >>%s
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":true}}' ;;
attach) echo '{"status":"Success","device":"/dev/vendor"}' ;;
isattached) echo '{"status":"Success","attached":true}' ;;
detach) echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
`

// A vendorDriver is the vendor's, in a plugin directory of kube-controller-manager's own.
type vendorDriver struct {
	driver
	plugins string
	calls   string // the file that has them
}

// vendorDriver gives kube-controller-manager a plugin directory of its own with the
// vendor's driver, until the scenario ends.
func (t *T) vendorDriver(d driver) *vendorDriver {
	t.Helper()
	root, err := os.MkdirTemp("", "vendor") // kube-controller-manager makes the directory again while it runs
	t.must(err)
	v := &vendorDriver{d, filepath.Join(root, "exec"), filepath.Join(root, "calls")}
	t.must(v.put())
	t.must(os.WriteFile(v.calls, nil, 0o600))
	manager := t.node.ControllerManager
	was := manager.Argv
	at := slices.Index(was, "--flex-volume-plugin-dir")
	if at < 0 {
		t.Fatalf("kube-controller-manager runs as %q", was)
	}
	manager.Kill()
	manager.Argv = slices.Clone(was)
	manager.Argv[at+1] = v.plugins
	t.must(manager.Start())
	t.after = append(t.after, func() {
		manager.Kill()
		manager.Argv = was
		t.check(errors.Join(os.RemoveAll(root), manager.Start()))
	})
	return v
}

// put puts the driver there.
func (v *vendorDriver) put() error {
	executable := v.executableIn(v.plugins)
	if err := os.MkdirAll(filepath.Dir(executable), 0o755); err != nil {
		return err
	}
	return os.WriteFile(executable, fmt.Appendf(nil, vendorScript, v.calls), 0o755)
}

// takeOut removes it, as docs/migrate.md has it.
func (v *vendorDriver) takeOut() error {
	return os.RemoveAll(filepath.Dir(v.executableIn(v.plugins)))
}

// wantNoDetach wants the vendor's driver not to have been called to detach.
func (t *T) wantNoDetach(calls string) {
	t.Helper()
	text, err := fileText(calls)
	t.must(err)
	if strings.Contains("\n"+text, "\ndetach ") {
		t.Fatalf("the vendor's driver has detached the volume under its pod:\n%s", text)
	}
}

func migrateVendorAttached(t *T) {
	// After a restart kube-controller-manager detaches within a second.
	const detached = 5 * time.Second
	vendor := t.vendorDriver(disk())
	v := t.volume(disk(), "data")
	t.follow(v)
	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	t.wait("kube-controller-manager to attach the volume", func() error {
		names, err := t.volumesAttached(v)
		if err == nil && len(names) == 0 {
			err = errors.New("volumesAttached does not have it")
		}
		return err
	})
	t.waitTold()
	if results, err := t.migrate("apply", "--yes", "--timeout", "1m", v.name); err == nil || !strings.Contains(err.Error(), "status.volumesAttached of node "+node.Name+" has it") {
		t.Errorf("apply: %+v %v", results, err)
	}
	t.must(t.node.ControllerManager.Restart())
	time.Sleep(detached)
	t.wantNoDetach(vendor.calls)
	t.wantFlexSpec(v, was)
	const finding = "(volume-attached-by-vendor)"
	doctor := func() string {
		text, _ := t.flex2csi("doctor", "--on=cluster", "--kubeconfig", node.Kubeconfig) // it fails where it finds something
		return text
	}
	if text := doctor(); !strings.Contains(text, finding) {
		t.Errorf("doctor does not report it:\n%s", text)
	}

	// docs/migrate.md, Take the driver out.
	t.must(vendor.takeOut())
	t.node.ControllerManager.Kill()
	t.forgetAttached(v)
	t.must(t.node.ControllerManager.Start())
	time.Sleep(detached)
	if names, err := t.volumesAttached(v); err != nil || len(names) > 0 {
		t.Fatalf("volumesAttached has %q again: %v", names, err)
	}
	if text := doctor(); strings.Contains(text, finding) {
		t.Errorf("doctor still reports it:\n%s", text)
	}

	t.toCSI(v.name)
	t.wantCSI(v, was)
	t.must(t.node.ControllerManager.Restart())
	time.Sleep(detached)
	t.wantNoDetach(vendor.calls)
	w.writes()
	w.note()
	t.delete(w.pod)
	t.waitIdle(v)
	t.wantUndoneOnce(v)
}

// forgetAttached removes the entries of a driver from the node's status, as
// docs/migrate.md has it.
func (t *T) forgetAttached(v *volume) {
	t.Helper()
	n, err := t.client.CoreV1().Nodes().Get(t.ctx(), node.Name, metav1.GetOptions{})
	t.must(err)
	rest := slices.DeleteFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
		return strings.HasPrefix(string(a.Name), v.driver.flex+"/")
	})
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": append([]corev1.AttachedVolume{}, rest...)}})
	t.must(err)
	_, err = t.client.CoreV1().Nodes().Patch(t.ctx(), node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	t.must(err)
}
