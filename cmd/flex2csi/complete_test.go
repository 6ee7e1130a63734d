package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// free are flags that take any text, a file or a number. A flag that takes one of a few values, or
// a name of the cluster, is none of them.
const free = `
as as-group as-uid as-user-extra proxy-url server tls-server-name token
boot-id-file certificate-authority client-certificate client-key config controller-socket driver-executable filename
host-root journal kubeconfig kubelet-dir log-file output-dir socket state-dir volume-plugin-dir
callout-timeout claim-selector http-endpoint metrics-path node-id secret selector set suffix until
`

// ofConfiguration are names of drivers in a configuration, which is on the node.
const ofConfiguration = "flex2csi install --attach, flex2csi install --no-selinux-relabel, flex2csi uninstall --driver"

// TestFlagsComplete: --distribution, --on, --fail-on, --accept, --by, --log-level and --capability
// completed with the files of the directory.
func TestFlagsComplete(t *testing.T) {
	completed := 0
	each(newRoot(), func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			_, ok := c.GetFlagCompletionFunc(f.Name)
			name := c.CommandPath() + " --" + f.Name
			switch {
			case ok && slices.Contains(strings.Fields(free), f.Name):
				t.Errorf("%s completes, and is among those that take anything", name)
			case ok:
				completed++
			case !strings.HasPrefix(f.Value.Type(), "string"), f.Name == "request-timeout", slices.Contains(strings.Fields(free), f.Name), slices.Contains(strings.Split(ofConfiguration, ", "), name):
			default:
				t.Errorf("%s completes with files: say with what it does, or list it here", name)
			}
		})
	})
	if completed < 60 {
		t.Errorf("only %d flags complete", completed)
	}
}

// complete returns what the shell is told for a command line, and what is on standard error but
// for cobra's line.
func complete(t *testing.T, args ...string) (words []string, errs string) {
	t.Helper()
	var out, err bytes.Buffer
	if status := run(append([]string{cobra.ShellCompNoDescRequestCmd}, args...), environment{in: strings.NewReader(""), out: &out, err: &err}); status != 0 {
		t.Errorf("%q: status %d", args, status)
	}
	words = strings.Fields(out.String())
	if words[len(words)-1] != ":4" {
		t.Errorf("%q: %q, want no files", args, words)
	}
	return words[:len(words)-1], strings.TrimPrefix(err.String(), "Completion ended with directive: ShellCompDirectiveNoFileComp\n")
}

// TestCompletions: values, and names of the cluster and of the kubeconfig.
func TestCompletions(t *testing.T) {
	server := httptest.NewServer(lists(map[string]string{
		"/api/v1/nodes":      `{"items": [{"metadata": {"name": "node-2"}}, {"metadata": {"name": "node-1"}}]}`,
		"/api/v1/namespaces": `{"items": [{"metadata": {"name": "shop"}}, {"metadata": {"name": "web"}}]}`,
		"/api/v1/persistentvolumes": `{"items": [
			{"metadata": {"name": "pv1"}, "spec": {"flexVolume": {"driver": "example.com/disk"}, "claimRef": {"namespace": "shop", "name": "orders"}}},
			{"metadata": {"name": "pv2"}, "spec": {"flexVolume": {"driver": "example.com/disk"}}},
			{"metadata": {"name": "csi"}, "spec": {"csi": {"driver": "disk.csi.example.com", "volumeHandle": "x"}}}]}`,
	}))
	defer server.Close()
	t.Setenv("KUBECONFIG", kubeconfigFor(t, server, "{}"))
	for line, want := range map[string]string{
		"doctor --on ":                      "auto node cluster both",
		"doctor --fail-on ":                 "error warning",
		"install --distribution kubea":      "kubeadm",
		"install --log-level ":              "debug info warn error",
		"assess --fail-on ":                 "flexvolumes",
		"status --by ":                      "volume pod",
		"migrate rollback --accept ":        "kubelet-restart",
		"migrate resume --accept owners,no": "owners,node",
		"map --capability A,STAGE":          "A,STAGE_UNSTAGE_VOLUME",
		"doctor --node-name ":               "node-1 node-2",
		"migrate plan -n ":                  "shop web",
		"migrate plan -n shop,":             "shop,shop shop,web",
		"status --attachments ":             "pv1 pv2",
		"migrate plan ":                     "pv1 pv2",
		"migrate apply --claim ":            "shop/orders",
		"migrate finish --driver ":          "example.com/disk",
		"assess --context ":                 "here",
		"assess --cluster ":                 "here",
		"assess --user ":                    "me",
	} {
		words := strings.Split(line, " ")
		last := words[len(words)-1]
		got, errs := complete(t, words...)
		got = slices.DeleteFunc(got, func(word string) bool { return !strings.HasPrefix(word, last) }) // as the shell
		if strings.Join(got, " ") != want || errs != "" {
			t.Errorf("%q: %q, want %q\n%s", line, got, want, errs)
		}
	}
}

// TestCompletionWithoutCluster: an API server that does not answer, refuses, or is nowhere, costs
// the shell a moment, and says nothing.
func TestCompletionWithoutCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	stop := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer hangs.Close()
	defer close(stop)
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for name, args := range map[string][]string{
		"hangs":   {"--kubeconfig", kubeconfigFor(t, hangs, "{}"), ""},
		"refuses": {"--kubeconfig", kubeconfigFor(t, refuses, "{}"), ""},
		"no file": {"--kubeconfig", "no/file", ""},
		"nowhere": {""},
	} {
		began := time.Now()
		got, errs := complete(t, append([]string{"migrate", "plan"}, args...)...)
		if len(got) > 0 || errs != "" || time.Since(began) > 3*completionPatience {
			t.Errorf("%s: %q after %s\n%s", name, got, time.Since(began), errs)
		}
	}
}

// lists answers requests by their paths, others with an empty list.
func lists(answers map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			answer = `{"items": []}`
		}
		var list map[string]any
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			panic(err)
		}
		if list["kind"] == nil {
			list["apiVersion"], list["kind"] = "v1", "List"
		}
		_ = json.NewEncoder(w).Encode(list)
	})
}
