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

// A documentedMessage is a row of docs/kubelet-messages.md.
type documentedMessage struct{ text, source string }

// TestKubeletSaysWhatIsDocumented: each message of docs/kubelet-messages.md is in
// the file that is named next to it, of the Kubernetes that is compiled here. What
// only one version says is marked.
func TestKubeletSaysWhatIsDocumented(t *testing.T) {
	root, minor := kubernetesSource(t)
	looked := 0
	for _, m := range documentedMessages(t) {
		file, versions, _ := strings.Cut(m.source, " (")
		file = strings.Trim(file, "`")
		var said bool
		switch {
		case strings.HasPrefix(file, "pkg/"), strings.HasPrefix(file, "plugin/"):
			said = m.in(t, filepath.Join(root, file))
		case strings.HasPrefix(file, "k8s.io/apimachinery/pkg/util/wait/"):
			said = m.in(t, filepath.Join(filepath.Dir(sourceOf(wait.Interrupted)), filepath.Base(file)))
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

func documentedMessages(t *testing.T) (all []documentedMessage) {
	t.Helper()
	page, err := os.ReadFile("../../docs/kubelet-messages.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| ([^|]+) \\|$").FindAllStringSubmatch(string(page), -1) {
		all = append(all, documentedMessage{row[1], row[2]})
	}
	return all
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
	file := sourceOf(flexvolume.GetDynamicPluginProber)
	root, _, _ = strings.Cut(file, "/pkg/volume/flexvolume/")
	m := regexp.MustCompile(`kubernetes@v1\.(\d+)\.`).FindStringSubmatch(root)
	if m == nil {
		t.Fatalf("%s does not tell its version", file)
	}
	return root, m[1]
}

// sourceOf is the file of a function.
func sourceOf(function any) string {
	pc := reflect.ValueOf(function).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return file
}
