package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestMigrateClasses: the commands of the table have the flags that were given, and -o yaml
// fails as long as something is to be filled in.
func TestMigrateClasses(t *testing.T) {
	input := write(t, `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: ceph.rook.io/block
parameters: {blockPool: replicapool}
`)
	got := func(code int, args ...string) (out, errs string) {
		t.Helper()
		var o, e bytes.Buffer
		if is := run(append([]string{"migrate", "classes", "-f", input}, args...), environment{out: &o, err: &e}); is != code {
			t.Fatalf("%q: status %d, want %d: %s", args, is, code, e.String())
		}
		return o.String(), e.String()
	}
	out, _ := got(0, "fast", "--suffix", "-new")
	if want := "flex2csi migrate classes --filename=" + input + " --suffix=-new fast -o yaml >storageclasses.yaml &&\n"; !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
	for _, format := range []string{"yaml", "json"} {
		out, _ = got(0, "-o", format)
		if !strings.Contains(out, "fast-csi") || !strings.Contains(out, "replicapool") {
			t.Error(out)
		}
	}
	custom := write(t, strings.Replace(oneDriver, "example.com/disk", "ceph.rook.io/rook-ceph", 1))
	out, errs := got(1, "-o", "yaml", "--config", custom)
	if !strings.Contains(out, "provisioner: disk.csi.example.com") || !strings.Contains(out, "<fill in parameters (") || !strings.Contains(errs, "create the CSI StorageClass in place of fast: ") {
		t.Errorf("%s\n%s", out, errs)
	}
}
