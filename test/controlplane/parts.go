package controlplane

import "os"

// PluginDir is kube-controller-manager's --flex-volume-plugin-dir.
func (p *Plane) PluginDir() string { return p.file("plugins") }

// StartControllerManager starts kube-controller-manager with the controllers
// that have to do with volumes: the one that attaches and detaches, and the one
// that binds claims.
func (p *Plane) StartControllerManager() *Part {
	p.t.Helper()
	p.check(os.MkdirAll(p.PluginDir(), 0o755))
	part := p.Program("kube-controller-manager",
		"--kubeconfig", p.Kubeconfig(controllerManager), "--leader-elect=false", "--secure-port=0",
		"--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller",
		"--use-service-account-credentials", "--flex-volume-plugin-dir", p.PluginDir(),
		"--attach-detach-reconcile-sync-period=1s", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--v=2")
	p.Run(part)
	return part
}

// StartScheduler starts kube-scheduler.
func (p *Plane) StartScheduler() *Part {
	p.t.Helper()
	part := p.Program("kube-scheduler",
		"--kubeconfig", p.Kubeconfig(Admin), "--leader-elect=false", "--secure-port=0", "--v=2")
	p.Run(part)
	return part
}

// StartAttacher starts the external-attacher of the CSI driver with its controller
// service at a socket.
func (p *Plane) StartAttacher(socket string, more ...string) *Part {
	p.t.Helper()
	part := p.Program("csi-attacher", append([]string{
		"--kubeconfig", p.Kubeconfig(attacher), "--csi-address", socket, "--kube-api-qps=500", "--kube-api-burst=1000",
		"--retry-interval-start=100ms", "--retry-interval-max=1s", "--reconcile-sync=5s", "--v=5",
	}, more...)...)
	p.Run(part)
	return part
}
