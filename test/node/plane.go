package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/test/parts"
	"github.com/flex2csi/flex2csi/test/rights"
)

// Where kubeadm has these files too.
const (
	pki         = "/etc/kubernetes/pki/"
	certFile    = pki + "tls.crt"
	keyFile     = pki + "tls.key"
	tokenFile   = pki + "tokens.csv"
	auditPolicy = "/etc/kubernetes/audit.yaml"
	kubeletConf = "/etc/kubernetes/kubelet.conf"
	managerConf = "/etc/kubernetes/controller-manager.conf"
	schedConf   = "/etc/kubernetes/scheduler.conf"

	// PluginDir is where the kubelet looks for FlexVolume drivers, by default.
	PluginDir = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"
)

// A user, by its token.
type user string

const (
	admin             user = "admin-token"
	kubelet           user = "kubelet-token"
	controllerManager user = "controller-manager-token"
	scheduler         user = "scheduler-token"
)

// users are the lines of the token file after the token, and the kubeconfig.
func users() map[user][2]string {
	return map[user][2]string{
		admin:             {`admin,1,"system:masters"`, Kubeconfig},
		kubelet:           {`system:node:` + Name + `,2,"system:nodes"`, kubeletConf},
		controllerManager: {`system:kube-controller-manager,3,`, managerConf},
		scheduler:         {`system:kube-scheduler,4,`, schedConf},
	}
}

func (n *Node) as(u user) parts.API {
	return parts.API{Address: Address + ":443", Token: string(u), Cert: n.cert.Cert}
}

// writeFiles writes what the parts read.
func (n *Node) writeFiles() error {
	cert, err := parts.NewCertificate(
		[]string{Name, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		net.IPv4(127, 0, 0, 1), net.ParseIP(Address), net.ParseIP(serviceAddress))
	if err != nil {
		return err
	}
	n.cert = cert
	files := map[string][]byte{certFile: cert.Cert, keyFile: cert.Key}
	var tokens strings.Builder
	for u, is := range users() {
		fmt.Fprintf(&tokens, "%s,%s\n", u, is[0])
		files[is[1]] = n.as(u).Kubeconfig()
	}
	files[tokenFile] = []byte(tokens.String())
	files[auditPolicy] = []byte(rights.AuditPolicy)
	files[kubeletConfig], err = n.kubeletConfig()
	if err != nil {
		return err
	}
	files[containerdConfig] = n.containerdConfig()
	files[cniConfig] = cniNetwork()
	for path, content := range files {
		if err := write(path, content); err != nil {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(n.dir, "log"), 0o755)
}

func write(path string, content []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600))
}

const etcdAddress = "http://127.0.0.1:2379"

func (n *Node) etcd() *parts.Part {
	return n.part("etcd", n.Env(),
		"--data-dir", "/var/lib/etcd/data", "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcdAddress, "--advertise-client-urls", etcdAddress)
}

func (n *Node) apiServer() *parts.Part {
	p := n.part("kube-apiserver", n.Env(), append(rights.AuditArgs(auditPolicy, n.AuditLog()),
		"--etcd-servers", etcdAddress, "--bind-address", "0.0.0.0", "--advertise-address", Address, "--secure-port", "443",
		"--service-cluster-ip-range", serviceRange, "--allow-privileged",
		"--tls-cert-file", certFile, "--tls-private-key-file", keyFile, "--client-ca-file", certFile,
		"--requestheader-client-ca-file", certFile, "--requestheader-allowed-names", "front-proxy",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", keyFile, "--service-account-signing-key-file", keyFile,
		"--token-auth-file", tokenFile, "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--kubelet-preferred-address-types", "InternalIP", "--kubelet-certificate-authority", certFile,
		"--kubelet-client-certificate", certFile, "--kubelet-client-key", keyFile,
		"--profiling=false", "--v=2")...)
	p.Ready = func() error { return n.as(admin).WaitReady(p) }
	return p
}

// AuditLog is the file with the requests of flex2csi's ServiceAccounts.
func (n *Node) AuditLog() string { return filepath.Join(n.dir, "log", "audit.log") }

// checkVersion ensures that no other release is tested by mistake.
func (n *Node) checkVersion() error {
	v, err := n.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	if want := n.options.Version; want != "" && !strings.HasPrefix(v.GitVersion, "v"+want+".") {
		return fmt.Errorf("this is Kubernetes %s, not %s: make node-programs-%s builds its programs", v.GitVersion, want, want)
	}
	return nil
}

func (n *Node) controllerManager() *parts.Part {
	plugins := n.options.ControllerPluginDir
	if plugins == "" {
		plugins = PluginDir
	}
	return n.part("kube-controller-manager", n.Env(),
		"--kubeconfig", managerConf, "--authentication-kubeconfig", managerConf, "--authorization-kubeconfig", managerConf,
		"--bind-address", "127.0.0.1", "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file", keyFile, "--root-ca-file", certFile,
		// Else its own service accounts take 4 s, and the node gets rid of its taint
		// up to 5 s late.
		"--kube-api-qps=500", "--kube-api-burst=1000", "--node-monitor-period=500ms",
		"--flex-volume-plugin-dir", plugins, "--v=2")
}

func (n *Node) scheduler() *parts.Part {
	return n.part("kube-scheduler", n.Env(),
		"--kubeconfig", schedConf, "--authentication-kubeconfig", schedConf, "--authorization-kubeconfig", schedConf,
		"--bind-address", "127.0.0.1", "--leader-elect=false", "--v=2")
}
