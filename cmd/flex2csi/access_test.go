package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// kubeconfigFor writes a kubeconfig for a server, with a user.
func kubeconfigFor(t *testing.T, server *httptest.Server, user string) string {
	t.Helper()
	ca := ""
	if certificate := server.Certificate(); certificate != nil {
		ca = ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	return write(t, kubeconfig+"current-context: here\ncontexts: [{name: here, context: {cluster: here, user: me}}]\n"+
		"clusters: [{name: here, cluster: {server: '"+server.URL+"'"+ca+"}}]\nusers: [{name: me, user: "+user+"}]\n")
}

// A recorder keeps the headers of requests, and answers with empty lists.
type recorder struct {
	*httptest.Server
	seen chan http.Header
}

func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{seen: make(chan http.Header, 1000)}
	empty := lists(nil)
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.seen <- q.Header
		empty.ServeHTTP(w, q)
	}))
	t.Cleanup(r.Close)
	return r
}

// header returns that of all requests since the last call.
func (r *recorder) header(t *testing.T, name string) string {
	t.Helper()
	value, requests := "", 0
	for ; len(r.seen) > 0; requests++ {
		got := strings.Join((<-r.seen)[name], ",")
		if requests > 0 && got != value {
			t.Errorf("%s is %q, and then %q", name, value, got)
		}
		value = got
	}
	if requests == 0 {
		t.Errorf("there was no request")
	}
	return value
}

func succeed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(args, environment{in: strings.NewReader(""), out: &out, err: &errs}); status != 0 {
		t.Fatalf("flex2csi %s: status %d\n%s", strings.Join(args, " "), status, errs.String())
	}
	return out.String()
}

// TestExecPlugin: the token of an exec plugin goes along.
func TestExecPlugin(t *testing.T) {
	server := record(t)
	plugin := filepath.Join(t.TempDir(), "login")
	script := "#!/bin/sh\necho '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"of-a-plugin\"}}'\n"
	if err := os.WriteFile(plugin, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	succeed(t, "assess", "--kubeconfig", kubeconfigFor(t, server.Server, "{exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: Never}}"))
	if got := server.header(t, "Authorization"); got != "Bearer of-a-plugin" {
		t.Errorf("it says %q", got)
	}
}

// TestOIDC: a kubeconfig with auth-provider oidc gave: no Auth Provider found for name "oidc".
func TestOIDC(t *testing.T) {
	server := record(t)
	claims, err := json.Marshal(map[string]any{"exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims) + ".x"
	succeed(t, "assess", "--kubeconfig", kubeconfigFor(t, server.Server, "{auth-provider: {name: oidc, config: {idp-issuer-url: 'https://127.0.0.1:1', client-id: kubernetes, id-token: "+token+"}}}"))
	if got := server.header(t, "Authorization"); got != "Bearer "+token {
		t.Errorf("it says %q", got)
	}
}

// TestRemovedProviders: gcp and azure say what took their place.
func TestRemovedProviders(t *testing.T) {
	server := record(t)
	for _, provider := range []string{"gcp", "azure"} {
		refused(t, 1, "", "The "+provider+" auth plugin has been removed", "assess", "--kubeconfig", kubeconfigFor(t, server.Server, "{auth-provider: {name: "+provider+"}}"))
	}
}

// TestConnectionFlags: those of kubectl do what they do there, in every way that a command asks.
func TestConnectionFlags(t *testing.T) {
	server, other := record(t), record(t)
	at := kubeconfigFor(t, server.Server, "{token: mine}")
	text, err := os.ReadFile(kubeconfigFor(t, other.Server, "{token: theirs}"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", at+string(os.PathListSeparator)+write(t, strings.NewReplacer("here", "there", "name: me", "name: them", "user: me", "user: them").Replace(string(text))))
	for _, tt := range []struct {
		flags        string
		where        *recorder
		header, want string
	}{
		{"", server, "Authorization", "Bearer mine"},
		{"--context there", other, "Authorization", "Bearer theirs"},
		{"--user them", server, "Authorization", "Bearer theirs"},
		{"--token given", server, "Authorization", "Bearer given"},
		{"--as jane", server, "Impersonate-User", "jane"},
		{"--as jane --as-group dev --as-group ops", server, "Impersonate-Group", "dev,ops"},
		{"--as jane --as-uid 7", server, "Impersonate-Uid", "7"},
		{"--as jane --as-user-extra team=storage", server, "Impersonate-Extra-Team", "storage"},
		{"--cluster there --user me", other, "Authorization", "Bearer mine"},
	} {
		for _, command := range []string{"assess", "doctor --on cluster --fail-on error", "status --attachments", "migrate status", "version"} {
			var out, errs bytes.Buffer
			run(strings.Fields(command+" "+tt.flags), environment{in: strings.NewReader(""), out: &out, err: &errs}) // there is no bridge: some fail
			if got := tt.where.header(t, tt.header); got != tt.want {
				t.Errorf("%s %s: %s is %q, want %q\n%s", command, tt.flags, tt.header, got, tt.want, errs.String())
			}
			if strings.Contains(out.String()+errs.String(), "given") {
				t.Errorf("%s prints the token: %s%s", command, out.String(), errs.String())
			}
		}
	}
}

// TestRequestTimeout: it bounds each request, and is 10 s else.
func TestRequestTimeout(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer server.Close()
	defer close(stop)
	at := kubeconfigFor(t, server, "{}")
	for _, command := range []string{"assess", "status --attachments", "migrate classes"} {
		began := time.Now()
		refused(t, 1, "", "", append(strings.Fields(command), "--kubeconfig", at, "--request-timeout", "300ms")...)
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("%s takes %s", command, took)
		}
	}
	refused(t, 1, "", "Invalid timeout value", "assess", "--kubeconfig", at, "--request-timeout", "soon")
}

// TestNoDefaultServer: kubectl asks http://localhost:8080 if nothing names an API server, and so
// would a command that is about to change a cluster. The pod's ServiceAccount is no other user.
func TestNoDefaultServer(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, flags := range []string{"", "--as jane", "--token x", "--request-timeout 5s"} {
		refused(t, 1, "", "find the API server: this is not a pod, and no kubeconfig is given", append([]string{"assess"}, strings.Fields(flags)...)...)
	}
	refused(t, 2, "", "--as and --in-cluster exclude each other", "assess", "--in-cluster", "--as", "jane")
	refused(t, 1, "", "connection refused", "assess", "--server", "http://127.0.0.1:1")
}

// TestTypedToken: the commands that migrate classes prints had the flags as they were given.
func TestTypedToken(t *testing.T) {
	c := newMigrateClasses()
	c.SetArgs([]string{"--token=secret", "--context=prod"})
	c.RunE = nil
	c.Run = func(*cobra.Command, []string) {}
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if got := typed(c); strings.Contains(got, "secret") || !strings.Contains(got, "--context=prod") {
		t.Error(got)
	}
}

// TestVersions: daemons and controllers are those of the cluster, by what they report or by their
// images, and what is not known is unknown.
func TestVersions(t *testing.T) {
	pod := func(component, name, node, image string) string {
		container := map[string]string{"node": "serve", "controller": "controller"}[component]
		return fmt.Sprintf(`{"metadata": {"namespace": "storage", "name": %q, "labels": {"app.kubernetes.io/component": %q}}, "spec": {"nodeName": %q, "containers": [{"name": "proxy", "image": "p:9"}, {"name": %q, "image": %q}]}}`,
			name, component, node, container, image)
	}
	server := httptest.NewServer(lists(map[string]string{
		"/api/v1/pods": `{"items": [` + strings.Join([]string{
			pod("node", "d1", "node-1", "registry.example:5000/flex2csi:ours"), pod("node", "d2", "node-2", "flex2csi/flex2csi:v0.1.0"),
			pod("node", "d3", "node-3", "ghcr.io/flex2csi/flex2csi:v0.2.0@sha256:0"), pod("node", "d4", "node-4", "registry.example:5000/flex2csi@sha256:0"),
			pod("controller", "c1", "node-1", "ghcr.io/flex2csi/flex2csi:v0.1.0"),
		}, ",") + `]}`,
		"/api/v1/namespaces/flex2csi-nodes/configmaps": `{"items": [{"data": {"volumes.json": "{\"apiVersion\":\"flex2csi.io/v1alpha1\",\"kind\":\"NodeVolumes\",\"node\":\"node-1\",\"version\":\"v0.2.0\"}"}}]}`,
	}))
	defer server.Close()
	at := kubeconfigFor(t, server, "{}")
	_, got, _ := strings.Cut(succeed(t, "version", "--kubeconfig", at), "\n")
	want := "daemon unknown: node-4\ndaemon v0.1.0: node-2\ndaemon v0.2.0: node-1, node-3\ncontroller v0.1.0: storage/c1\n"
	if got != want {
		t.Errorf("it prints\n%swant\n%s", got, want)
	}
	var document struct {
		Version string
		Cluster struct {
			Daemons, Controllers []struct{ Pod, Node, Image, Version string }
		}
	}
	if err := json.Unmarshal([]byte(succeed(t, "version", "--kubeconfig", at, "-o", "json")), &document); err != nil || document.Version == "" || len(document.Cluster.Daemons) != 4 || document.Cluster.Daemons[3].Version != unknown {
		t.Errorf("%v, %+v", err, document)
	}
	if _, got, _ = strings.Cut(succeed(t, "version", "--kubeconfig", at, "--client"), "\n"); got != "" {
		t.Errorf("--client prints %s", got)
	}
	empty := httptest.NewServer(lists(nil))
	defer empty.Close()
	if _, got, _ = strings.Cut(succeed(t, "version", "--kubeconfig", kubeconfigFor(t, empty, "{}")), "\n"); got != "daemon: none in the cluster\ncontroller: none in the cluster\n" {
		t.Errorf("without a bridge it prints %s", got)
	}
	if _, got, _ = strings.Cut(succeed(t, "version", "--kubeconfig", "no/file"), "\n"); !strings.HasPrefix(got, "daemons and controllers: unknown: find the API server: kubeconfig no/file: ") {
		t.Errorf("without a cluster it prints %s", got)
	}
}
