package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/test/testenv"
)

var update = flag.Bool("update", false, "update golden files")

// heavy says what must never be linked, whatever the golden list says. Each
// line is a package path, which stands for the packages below it as well, and
// the reason. The costs are those of one start against an empty Go program.
const heavy = `
net/http                                 2.5x; nothing here speaks HTTP
net/rpc                                  2.4x; it imports net/http
crypto/tls                               there is no one to talk TLS to
google.golang.org                        gRPC and protobuf: 4x
github.com/container-storage-interface   only the daemon speaks CSI: 4.4x
k8s.io/client-go                         only the daemon talks to the API server: 6x
k8s.io/api                               2.6x
k8s.io/apimachinery                      comes with k8s.io/api
k8s.io/apiextensions-apiserver           comes with client-go
sigs.k8s.io                              the dot-file is JSON; YAML costs 1.4x against 1.2x
log/syslog                               writes to stderr when syslog is away
testing                                  test/testenv is for tests
`

// TestDeps compares what flexdriver links with the reviewed list in deps.txt.
// It is executed for every callout: what is linked is loaded and initialised
// each time, on a cold page cache most of all.
func TestDeps(t *testing.T) {
	testenv.Need(t, "prog:go")
	got := testenv.Linked(t, heavy)
	if *update {
		text := "# What flexdriver links, without the insides of the standard library.\n# make deps writes this file; each new line is a change to review.\n" + strings.Join(got, "\n") + "\n"
		if err := os.WriteFile("deps.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile("deps.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			want = append(want, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flexdriver links other packages than deps.txt lists (-listed +linked). If that is meant, run make deps and say in the commit what they cost.\n%s", diff)
	}
}
