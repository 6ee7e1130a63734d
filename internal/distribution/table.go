package distribution

import "slices"

// All are the distributions, the general one first and the others by name.
func All() []Distribution {
	return slices.Concat(upstream(), clouds(), installers(), products(), systems())
}

// upstream is what holds unless something else is known.
func upstream() []Distribution {
	return []Distribution{{
		Name: "kubeadm", Title: "kubeadm and other upstream kubelets",
		PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
		Source: "pkg/kubelet/apis/config/v1beta1/defaults.go of Kubernetes",
		Trap:   "From 1.36 on kubeadm does not give kube-controller-manager the plugin directory any more (CHANGELOG-1.36): with attach: true it has to be mounted there again. With attach: false, the default, nothing is needed.",
	}}
}

// clouds are the managed distributions: only their providers can change the
// kubelet's configuration, or have access to kube-controller-manager.
func clouds() []Distribution {
	const noManager = "There is no access to kube-controller-manager: attach: true cannot be used."
	return []Distribution{
		{
			Name: "ack", Title: "Alibaba Cloud ACK",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "no flag in its documents; AliyunContainerService/flexvolume installs there",
			Trap:   noManager,
		},
		{
			Name: "aks", Title: "Azure AKS",
			PluginDir: aksPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "the kubelet's unit on its nodes; tigera/operator; Azure/kubernetes-volume-drivers",
			Trap:   noManager,
		},
		{
			Name: "eks", Title: "Amazon EKS",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "no flag in the bootstrap of Amazon Linux",
			Trap:   noManager + " Amazon Linux 2023 has SELinux, permissive unless the operator changed that. Nodes with Bottlerocket differ: see bottlerocket.",
		},
		{
			Name: "gke", Title: "Google GKE, and Container-Optimized OS anywhere",
			PluginDir: gkePluginDir, KubeletDir: DefaultKubeletDir,
			Source: "cluster/gce/config-default.sh of Kubernetes; kops nodeup, kubelet.go; tigera/operator",
			Trap:   noManager + " /home is mounted noexec. GKE and kops mount the directory once more with exec (kubernetes/kops#10547); on a node of one's own that has to be done: installing says how.",
		},
		{
			Name: "oke", Title: "Oracle OKE",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "no flag in its documents; oracle/oci-flexvolume-driver installs there",
			Trap:   noManager + " Oracle Linux has SELinux, permissive unless the operator changed that.",
		},
	}
}

// installers are what people make clusters with.
func installers() []Distribution {
	return []Distribution{
		{
			Name: "gardener", Title: "Gardener",
			PluginDir: volumePlugins, KubeletDir: DefaultKubeletDir,
			Source: "gardener/gardener#1414",
			Trap:   "kube-controller-manager runs in another cluster: attach: true cannot be used.",
		},
		{
			Name: "k0s", Title: "k0s",
			PluginDir: k0sPluginDir, KubeletDir: "/var/lib/k0s/kubelet",
			Source: "pkg/constant of k0sproject/k0s",
			Trap:   "The kubelet's own directory is another one than elsewhere: whatever has /var/lib/kubelet in it, CSI drivers too, has to be told.",
		},
		{
			Name: "k3s", Title: "K3s",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "pkg/daemons/agent of k3s-io/k3s sets none",
			Trap:   "The kubelet is a part of the process k3s. Where /usr is read-only (k3s-io/k3s#1683): --kubelet-arg=volume-plugin-dir=DIR for k3s, and the same DIR as volumePluginDir here.",
		},
		{
			Name: "kind", Title: "kind, minikube",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "no flag in the configuration that they write for kubeadm; Azure/kubernetes-keyvault-flexvol#182",
			Trap:   "The virtual machine of minikube forgets the directory at each start (kubernetes/minikube#1719): the pods put the driver there again, with a restart of the kubelet if it had found no directory.",
		},
		{
			Name: "kops", Title: "kOps",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "nodeup, kubelet.go of kubernetes/kops",
			Trap:   "It depends on the image: with Flatcar see flatcar-kops, with Container-Optimized OS see gke.",
		},
		{
			Name: "kubespray", Title: "Kubespray",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "kubelet_flexvolumes_plugins_dir of kubernetes-sigs/kubespray",
			Trap:   "Before 2.11 it was /var/lib/kubelet/volume-plugins; where /usr is read-only people set /var/lib/kubelet/volumeplugins.",
		},
	}
}

// products are clusters that come as one thing.
func products() []Distribution {
	return []Distribution{
		{
			Name: "magnum", Title: "OpenStack Magnum",
			PluginDir: volumePlugins, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "the documents of rook for FlexVolume",
			Trap:   "The kubelet may run in a container, which has to have the directory mounted.",
		},
		{
			Name: "microk8s", Title: "MicroK8s",
			PluginDir: DefaultPluginDir, KubeletDir: "/var/snap/microk8s/common/var/lib/kubelet",
			Source: "microk8s-resources/default-args/kubelet of canonical/microk8s; hetznercloud/csi-driver#536",
			Trap:   "The kubelet is a part of the process kubelite. /var/lib/kubelet is a link to its directory, and not the name that the kubelet uses.",
		},
		{
			Name: "openshift", Title: "OpenShift 4",
			PluginDir: openshiftPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "Red Hat's documents, Installing FlexVolume drivers; openshift/installer#1681",
			Trap:   "attach: true is not supported: before 4.17 (Kubernetes 1.30), CSI drivers that attach need the component kubernetes-before-1.30-nodes-attach. The overlay binds the security context constraints privileged and nonroot-v2.",
		},
		{
			Name: "rke1", Title: "RKE 1",
			PluginDir: volumePlugins, KubeletDir: DefaultKubeletDir,
			Source: "cluster/plan.go of rancher/rke",
			Trap:   "The kubelet runs in a container. On RancherOS, CoreOS and Flatcar what it calls /var/lib/kubelet is /opt/rke/var/lib/kubelet on the node.",
		},
		{
			Name: "rke2", Title: "RKE2",
			PluginDir: volumePlugins, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "pkg/podexecutor/staticpod.go of rancher/rke2; tigera/operator",
			Trap:   "With SELinux enforcing its own policy (rke2-selinux) has to be there.",
		},
	}
}

// systems are operating systems that decide more than what runs on them.
func systems() []Distribution {
	return []Distribution{
		{
			Name: "bottlerocket", Title: "Bottlerocket",
			PluginDir: bottlerocketPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "bottlerocket-os/bottlerocket#1354, #1417",
			Trap:   "SELinux, which cannot be switched off, may deny the kubelet to run what a container has put there (bottlerocket-os/bottlerocket#2413): the label of the file decides.",
		},
		{
			Name: "fedora-coreos", Title: "Fedora CoreOS with kubeadm",
			PluginDir: optPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "kubernetes/kubeadm#2031, kubernetes/kubernetes#88210",
			Trap:   "The default is below /usr, which is read-only: the kubelet says so once and reads no drivers. volumePluginDir of the kubelet has to be set, to this one or another.",
		},
		{
			Name: "flatcar", Title: "Flatcar with kubeadm or Cluster API",
			PluginDir: optPluginDir, KubeletDir: DefaultKubeletDir,
			Source: "the templates of Cluster API",
			Trap:   "As with Fedora CoreOS: the default is below /usr, which is read-only.",
		},
		{
			Name: "flatcar-kops", Title: "Flatcar with kOps or Typhoon",
			PluginDir: volumePlugins, KubeletDir: DefaultKubeletDir,
			Source: "nodeup, kubelet.go of kubernetes/kops; poseidon/typhoon#142",
		},
		{
			Name: "talos", Title: "Talos Linux",
			PluginDir: DefaultPluginDir, KubeletDir: DefaultKubeletDir, SELinux: true,
			Source: "kubelet_spec.go of siderolabs/talos, which sets none",
			Trap:   "The kubelet runs in a container, without a shell and without libraries: only static programs run there, as flexdriver is. /usr/libexec/kubernetes is a writable overlay. Not tested yet.",
		},
	}
}
