package main

import "github.com/flex2csi/flex2csi/test/daemon"

// csiDriver is what this program is called where it is the CSI driver.
const csiDriver = "csidriver"

func (n *node) csiDir() string   { return n.dir + "/csi" }
func (n *node) socket() string   { return n.bridge().Socket() }
func (n *node) stateDir() string { return n.bridge().StateDir() }
func (n *node) callLog() string  { return n.dir + "/calls" }
func (n *node) faults() string   { return n.dir + "/faults" }

func (n *node) bridge() *daemon.Daemon {
	return &daemon.Daemon{Dir: n.dir, KubeletDir: n.kubelet, NodeName: nodeOf, Drivers: []daemon.Driver{
		{FlexDriver: driverName, CSIDriver: csiName, ControllerEndpoint: n.csiDir() + "/csi.sock"},
	}}
}

// start starts a program that is ready when a socket is there.
func (n *node) start(name, binary, socket string, args ...string) (*daemon.Process, error) {
	cmd := n.command(binary, args...)
	cmd.Args[0] = name
	return daemon.Start(cmd, n.dir+"/"+name+".log", socket)
}
