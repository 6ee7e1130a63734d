package storage_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A network is that between the node and its servers, which are in a network namespace of their own.
type network struct{ t *testing.T }

// Addresses of the node and of the servers.
const (
	nodeAddress   = "10.1.0.2"
	serverAddress = "10.1.0.1"
)

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t}
	n.sh(`modprobe veth
ip netns add servers
ip link add node type veth peer name servers netns servers
ip address add ` + nodeAddress + `/24 dev node
ip link set node up
ip -n servers link set lo up
ip -n servers address add ` + serverAddress + `/24 dev servers
ip -n servers link set servers up`)
	return n
}

func (n *network) sh(script string) {
	n.t.Helper()
	sh(n.t, script)
}

// sh runs a script, which has to succeed.
func sh(t *testing.T, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-e")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// silence makes the servers vanish: packets go to them, and none comes back.
func (n *network) silence() {
	n.t.Helper()
	n.sh("ip neighbor replace " + serverAddress + " lladdr 02:00:00:00:00:99 dev node")
}

// answer ends the silence.
func (n *network) answer() {
	n.t.Helper()
	n.sh("ip neighbor delete " + serverAddress + " dev node")
}
