//go:build !k8s124

// The document tells what new releases say, so there is no such test of an old one.

package contract

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/volume/flexvolume"
)

// A documentedMessage is one of docs/troubleshooting.md, and what prints it.
type documentedMessage struct{ text, source string }

// TestKubeletSaysWhatIsDocumented: each message of Kubernetes in
// docs/troubleshooting.md is in the file that messageSources names, of the Kubernetes
// that is compiled here. What only one version says is marked.
func TestKubeletSaysWhatIsDocumented(t *testing.T) {
	root, minor := kubernetesSource(t)
	looked := 0
	for _, m := range documentedMessages(t) {
		file, versions, _ := strings.Cut(m.source, " (")
		var said bool
		switch {
		case strings.HasPrefix(file, "pkg/"), strings.HasPrefix(file, "plugin/"):
			said = m.in(t, filepath.Join(root, file))
		case strings.HasPrefix(file, "k8s.io/apimachinery/pkg/util/wait/"):
			said = m.in(t, filepath.Join(filepath.Dir(sourceOf(t, wait.Interrupted)), filepath.Base(file)))
		case file == "the kernel":
			said = saidByKernel(m.text)
		case strings.HasPrefix(file, "Go, "):
			said = saidByGo(m.text)
		case file == "containerd", file == "external-attacher", file == "the CSI driver", file == "kubelets before 1.36":
			continue // are not compiled here
		default:
			t.Errorf("%q: no program %q is known", m.text, file)
			continue
		}
		looked++
		want := versions == "" || versions == "to 1.36)" && minor == "36" || versions == "since 1.37)" && minor != "36"
		if said != want {
			t.Errorf("Kubernetes 1.%s: %q in %s: %v, documented: %v %s", minor, m.text, file, said, want, versions)
		}
	}
	if looked < 50 {
		t.Errorf("only %d messages were compared", looked)
	}
}

// documentedMessages are those of the document, each with its source.
func documentedMessages(t *testing.T) (all []documentedMessage) {
	t.Helper()
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Messages of Kubernetes\n")
	text, _, _ = strings.Cut(text, "\n## ")
	sources := map[string]string{}
	for source, messages := range messageSources() {
		for _, message := range messages {
			sources[message] = source
		}
	}
	for _, entry := range regexp.MustCompile("(?m)^- (`[^`]+`(?:, `[^`]+`)*): ").FindAllStringSubmatch(text, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(entry[1], -1) {
			if sources[m[1]] == "" {
				t.Errorf("no source is known of %q", m[1])
				continue
			}
			all = append(all, documentedMessage{m[1], sources[m[1]]})
			delete(sources, m[1])
		}
	}
	for message := range sources {
		t.Errorf("%q is not documented", message)
	}
	return all
}

// messageSources are the files of Kubernetes and the other programs that print the
// messages of docs/troubleshooting.md.
func messageSources() map[string][]string {
	return map[string][]string{
		"Go, encoding/json": {
			"unexpected end of JSON input",
			"looking for beginning of value",
		},
		"Go, os/exec": {
			"executable file not found in $PATH",
		},
		"containerd": {
			"is not a shared mount",
		},
		"external-attacher": {
			"does not contain driver",
		},
		"k8s.io/apimachinery/pkg/util/wait/error.go": {
			"timed out waiting for the condition",
		},
		"kubelets before 1.36": {
			"fork/exec …: permission denied",
			"volume paths are still present on disk",
		},
		"pkg/apis/core/validation/validation.go": {
			"spec.persistentvolumesource is immutable after creation",
		},
		"pkg/controller/volume/attachdetach/reconciler/reconciler.go": {
			"attacherDetacher.DetachVolume started",
		},
		"pkg/controller/volume/attachdetach/reconciler/reconciler.go (since 1.37)": {
			"Volume is already exclusively attached to one node, waiting on detach",
		},
		"pkg/controller/volume/attachdetach/reconciler/reconciler.go (to 1.36)": {
			"Multi-Attach error",
		},
		"pkg/controller/volume/persistentvolume/pv_controller.go": {
			"Bound claim has lost its PersistentVolume. Data on the volume is lost!",
			"Two claims are bound to the same volume, this one is bound incorrectly",
		},
		"pkg/kubelet/kubelet.go": {
			"Unable to attach or mount volumes: …",
		},
		"pkg/kubelet/kubelet_volumes.go": {
			"orphaned pod … found, but failed to rmdir() volume at path …: …",
			"Orphaned pod found, but volumes are not cleaned up",
		},
		"pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go": {
			"RegisterPlugin error -- dial failed at socket …, err: …",
		},
		"pkg/kubelet/volumemanager/cache/desired_state_of_world.go": {
			"failed to get Plugin from volumeSpec for volume",
		},
		"pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go": {
			"PVC is not bound",
		},
		"pkg/kubelet/volumemanager/reconciler/reconstruct.go": {
			"Could not construct volume information",
		},
		"pkg/kubelet/volumemanager/volume_manager.go": {
			"unmounted volumes=…, unattached volumes=…, failed to process volumes=…: …",
			"Node has reached its volume attachment limit, rejecting pod.",
		},
		"pkg/scheduler/framework/plugins/nodevolumelimits/csi.go": {
			"exceed max volume count",
		},
		"pkg/scheduler/framework/plugins/volumebinding/volume_binding.go": {
			"persistentvolumeclaim … bound to non-existent persistentvolume …",
		},
		"pkg/volume/csi/csi_attacher.go": {
			"timed out waiting for external-attacher of …",
		},
		"pkg/volume/csi/csi_client.go": {
			"driver name … not found in the list of registered CSI drivers",
		},
		"pkg/volume/flexvolume/driver-call.go": {
			"FlexVolume: driver call failed: executable: …, args: …",
			"FlexVolume: driver bug: …: exec error (…) but no error in response.",
			"Failed to unmarshal output for command: …, output: …",
			"… command failed, status: …, reason: …",
		},
		"pkg/volume/flexvolume/mounter-defaults.go": {
			"using default …",
		},
		"pkg/volume/flexvolume/probe.go": {
			"error creating Flexvolume plugin from directory …, skipping",
			"error (re-)creating driver directory: …",
			"error adding watch on Flexvolume directory: …",
			"Flexvolume plugin directory at … does not exist. Recreating.",
		},
		"pkg/volume/flexvolume/unmounter.go": {
			"Unmount skipped because path does not exist: …",
		},
		"pkg/volume/flexvolume/util.go": {
			"couldn't get secret …/… err: …",
		},
		"pkg/volume/plugins.go": {
			"no volume plugin matched",
			"no volume plugin matched name: …",
			"Error dynamically probing plugins",
			"Error initializing dynamic plugin prober",
		},
		"pkg/volume/util/operationexecutor/operation_generator.go": {
			"UnmountVolume.FindPluginByName failed",
			"MountVolume.SetUp failed",
			"MountVolume.MountDevice failed",
			"MountVolume.WaitForAttach failed",
			"AttachVolume.Attach failed",
			"NodeExpandVolume.NodeExpandVolume failed",
			"MountVolume.Setup failed while expanding volume",
			"mount options are not supported for this volume type",
			"MountVolume.NodeAffinity check failed",
			"MapVolume.FindMapperPluginBySpec failed",
			"AttachVolume.FindAttachablePluginBySpec failed",
			"DetachVolume.FindAttachablePluginByName failed",
			"Volume not attached according to node status",
			"Volume has not been added to the list of VolumesInUse",
			"UnmountVolume.TearDown failed",
			"UnmountDevice failed",
			"error cleaning subPath mounts",
			"the device mount path … is still mounted by other references …",
			"the device is in use when it was no longer expected to be in use",
			"volume is still in use by node, according to Node status",
		},
		"pkg/volume/util/util.go": {
			"cannot get secret of type …",
		},
		"plugin/pkg/auth/authorizer/node/node_authorizer.go": {
			"can only get individual resources of this type",
		},
		"the CSI driver": {
			"ResourceExhausted",
		},
		"the kernel": {
			"transport endpoint is not connected",
			"stale file handle",
			"input/output error",
			"read-only file system",
			"device or resource busy",
			"directory not empty",
		},
	}
}

// in reports whether a file has the message: its constant parts, in their order,
// on one line.
func (m documentedMessage) in(t *testing.T, file string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%q: %v", m.text, err)
	}
	var parts []string
	for part := range strings.SplitSeq(m.text, "…") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, regexp.QuoteMeta(part))
		}
	}
	return regexp.MustCompile(strings.Join(parts, `[^\n]*`)).Match(text)
}

func saidByKernel(text string) bool {
	for i := range 200 {
		if strings.Contains(syscall.Errno(i).Error(), text) {
			return true
		}
	}
	return false
}

func saidByGo(text string) bool {
	var v map[string]any
	for _, err := range []error{exec.ErrNotFound, json.Unmarshal(nil, &v), json.Unmarshal([]byte("usage:"), &v)} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// kubernetesSource is where the Kubernetes lies that is compiled here.
func kubernetesSource(t *testing.T) (root, minor string) {
	t.Helper()
	file := sourceOf(t, flexvolume.GetDynamicPluginProber)
	root, _, _ = strings.Cut(file, "/pkg/volume/flexvolume/")
	m := regexp.MustCompile(`kubernetes@v1\.(\d+)\.`).FindStringSubmatch(root)
	if m == nil {
		t.Fatalf("%s does not tell its version", file)
	}
	return root, m[1]
}

// sourceOf is the file of a function. With -trimpath the program knows it by its module.
func sourceOf(t *testing.T, function any) string {
	t.Helper()
	pc := reflect.ValueOf(function).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	if filepath.IsAbs(file) {
		return file
	}
	modules, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(modules)), file)
}
