package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestVendorDaemonSet runs what the example for vendors runs on a node, and what its comment
// says to remove the driver.
func TestVendorDaemonSet(t *testing.T) {
	text, err := os.ReadFile("../../install/examples/vendor-driver.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, document, _ := bytes.Cut(text, []byte("\n---\n"))
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(document, &set); err != nil {
		t.Fatal(err)
	}
	spec := set.Spec.Template.Spec
	c := spec.InitContainers[0]
	if len(c.VolumeMounts) != 1 || len(c.Command) != 1 || !spec.HostPID {
		t.Fatalf("it mounts %v, runs %q, hostPID %t", c.VolumeMounts, c.Command, spec.HostPID)
	}

	plugins, driver := t.TempDir(), filepath.Join(t.TempDir(), "mydriver")
	if err := os.WriteFile(driver, []byte("#!/bin/sh\necho '{\"status\":\"Success\"}'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var install, uninstall []string
	for _, arg := range c.Args {
		flag, value, _ := strings.Cut(arg, "=")
		switch value {
		case c.VolumeMounts[0].MountPath:
			arg = flag + "=" + plugins
		case "/mydriver":
			arg = flag + "=" + driver
		}
		install = append(install, arg)
		if flag != "--executable" {
			uninstall = append(uninstall, strings.Replace(arg, "install", "uninstall", 1))
		}
	}
	for _, call := range []struct {
		args []string
		left int
	}{{install, 1}, {install, 1}, {uninstall, 0}} {
		var out bytes.Buffer
		command, ok := forPeople(append([]string{"flexdriver"}, call.args...))
		if !ok {
			t.Fatalf("%q is no command", call.args)
		}
		if err := command(call.args[1:], &out); err != nil {
			t.Fatalf("%q: %v\n%s", call.args, err, &out)
		}
		if found, _ := filepath.Glob(filepath.Join(plugins, "example.com~mydriver", "mydriver")); len(found) != call.left {
			t.Errorf("%q left %q", call.args, found)
		}
	}
}
