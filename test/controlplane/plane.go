package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/parts"
	"github.com/flex2csi/flex2csi/test/rights"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// The environment: the directory with the programs, and the release of Kubernetes of
// which they are to be, if it is not the newest: 1.28 (make node-programs-1.28).
const (
	envPrograms = "FLEX_PROGRAMS"
	envRelease  = "KUBERNETES"
)

// Release is the release of the control plane; zero is the newest.
func Release() distribution.Minor {
	m, _ := distribution.ParseMinor(os.Getenv(envRelease))
	return m
}

// A Part is one program of the control plane.
type Part = parts.Part

// A Plane is a control plane. Its methods fail the test instead of returning
// an error.
type Plane struct {
	// ETCD and APIServer run from the start.
	ETCD, APIServer *Part

	t     testing.TB
	dir   string
	cert  *parts.Certificate
	api   string // host:port
	admin kubernetes.Interface
}

// Start starts etcd and the API server.
func Start(t testing.TB) *Plane {
	t.Helper()
	testenv.Need(t, "control-plane")
	dir, err := os.MkdirTemp("", "plane") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	p := &Plane{t: t, dir: dir}
	p.writeFiles()
	p.ETCD, p.APIServer = p.parts()
	p.Run(p.ETCD)
	p.Run(p.APIServer)
	p.admin = p.Client(Admin)
	p.prepare()
	return p
}

// With returns the same control plane for a subtest.
func (p *Plane) With(t testing.TB) *Plane {
	q := *p
	q.t = t
	return &q
}

// Admin is a client that may do everything.
func (p *Plane) Admin() kubernetes.Interface { return p.admin }

// check fails the test.
func (p *Plane) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// Run starts a part that ends with the test, and shows what it said if the test
// fails. What API server and etcd say matters only if they have died.
func (p *Plane) Run(part *Part) {
	p.t.Helper()
	p.t.Cleanup(func() {
		tells := part.Ended() || part != p.ETCD && part != p.APIServer
		part.Kill()
		if p.t.Failed() && tells {
			p.t.Logf("the end of what %s said:\n%s", part.Name, part.Tail())
		}
	})
	p.check(part.Start())
}

// Program describes a program of $FLEX_PROGRAMS: one of the control plane's, or
// another that is to end with the test.
func (p *Plane) Program(name string, args ...string) *Part {
	p.t.Helper()
	log, err := os.CreateTemp(p.dir, name+"-*.log")
	p.check(err)
	p.check(log.Close())
	return &Part{Name: name, Argv: append([]string{program(name)}, args...), Log: log.Name()}
}

// program is the path of a program: the release's own, or else the newest.
func program(name string) string {
	dir := os.Getenv(envPrograms)
	if of := filepath.Join(dir+"-"+os.Getenv(envRelease), name); Release() != 0 {
		if _, err := os.Stat(of); err == nil {
			return of
		}
	}
	return filepath.Join(dir, name)
}

// file is the path of one of the control plane's files.
func (p *Plane) file(name string) string { return filepath.Join(p.dir, name) }

func (p *Plane) writeFiles() {
	p.t.Helper()
	var err error
	p.cert, err = parts.NewCertificate(nil, net.IPv4(127, 0, 0, 1))
	p.check(err)
	var tokens strings.Builder
	for token, user := range users() {
		fmt.Fprintf(&tokens, "%s,%s\n", token, user)
	}
	for name, content := range map[string][]byte{"tls.crt": p.cert.Cert, "tls.key": p.cert.Key, "tokens.csv": []byte(tokens.String()), "audit.yaml": []byte(rights.AuditPolicy)} {
		p.check(os.WriteFile(p.file(name), content, 0o600))
	}
}

// parts describes etcd and the API server.
func (p *Plane) parts() (etcd, api *Part) {
	p.t.Helper()
	client, peer := "http://"+p.freeAddress(), "http://"+p.freeAddress()
	etcd = p.Program("etcd",
		"--data-dir", p.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	p.api = p.freeAddress()
	host, port, _ := net.SplitHostPort(p.api)
	api = p.Program("kube-apiserver", append(rights.AuditArgs(p.file("audit.yaml"), p.file("audit.log")),
		"--etcd-servers", client, "--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--endpoint-reconciler-type", "none", // loopback is no address of a service
		"--service-cluster-ip-range", "10.0.0.0/24",
		"--tls-cert-file", p.file("tls.crt"), "--tls-private-key-file", p.file("tls.key"), "--cert-dir", p.file("certs"),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", p.file("tls.key"), "--service-account-signing-key-file", p.file("tls.key"),
		"--token-auth-file", p.file("tokens.csv"), "--authorization-mode", "Node,RBAC",
		// No controller makes the ServiceAccounts that it requires.
		"--disable-admission-plugins", "ServiceAccount",
		"--allow-privileged", // as everywhere
		"--profiling=false")...)
	if m := Release(); m != 0 && m < 25 { // strict requests are asked for
		api.Argv = append(api.Argv, "--feature-gates=ServerSideFieldValidation=true")
	}
	api.Ready = func() error { return p.at(p.api, Admin).WaitReady(api) }
	return etcd, api
}

// Audit is what the ServiceAccounts of flex2csi have asked for until now.
func (p *Plane) Audit() *rights.Audit {
	p.t.Helper()
	a, err := rights.ReadAudit(p.file("audit.log"))
	p.check(err)
	return a
}

// freeAddress returns an address on loopback without a listener. The kernel
// would give one out of the range from which it takes the ports of clients, and
// might do so again before a server is there.
func (p *Plane) freeAddress() string {
	p.t.Helper()
	const first, number, tries = 12000, 20000, 100
	for range tries {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(number))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	p.t.Fatal("no port is free")
	return ""
}

// prepare makes what the API server or kube-controller-manager would make a
// moment later.
func (p *Plane) prepare() {
	p.t.Helper()
	p.Namespace(metav1.NamespaceDefault)
	p.makeAttacherRole()
}
