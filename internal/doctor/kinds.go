package doctor

// ID names a kind of finding. It does not change from one release to the next.
type ID string

// A Kind is a kind of finding.
type Kind struct {
	ID       ID
	Severity Severity
	// Messages are what people meet of it, without their variable parts. Those
	// of the kubelet are from Kubernetes v1.37.1, with the file.
	Messages []string
	// Advice says what to do. {subject} stands for what the finding is about.
	Advice string
}

// kinds are all that were declared. Only kind writes it, while the program starts.
var kinds []*Kind

// kind declares a kind of finding.
func kind(id ID, severity Severity, messages []string, advice string) *Kind {
	k := &Kind{id, severity, messages, advice}
	kinds = append(kinds, k)
	return k
}

const (
	noPlugin      = `no volume plugin matched`                        // pkg/volume/plugins.go
	badOutput     = `Failed to unmarshal output for command: init`    // pkg/volume/flexvolume/driver-call.go
	callFailed    = `FlexVolume: driver call failed: executable:`     // same
	probingFailed = `Error dynamically probing plugins`               // pkg/volume/plugins.go
	proberFailed  = `Error initializing dynamic plugin prober`        // same
	notRegistered = `not found in the list of registered CSI drivers` // pkg/volume/csi/csi_client.go
	// notStarted is the kubelet's word whatever the kernel said (k8s.io/utils/exec,
	// handleError).
	notStarted = `executable file not found in $PATH`
)

// What is found about the kubelet and its plugin directory.
var (
	pluginDirUsed     = kind("plugin-dir", OK, nil, "")
	pluginDirMismatch = kind("plugin-dir-mismatch", Error,
		[]string{noPlugin},
		"Install the drivers where this kubelet looks ({subject}): flexdriver install --volume-plugin-dir {subject} …; or change the kubelet's volumePluginDir and restart it.")
	pluginDirMissing = kind("plugin-dir-missing", Error,
		[]string{noPlugin, proberFailed},
		"mkdir -p {subject}, and restart the kubelet if its log has the second message: it watches the directory from its start or not at all. On a read-only file system choose another directory (volumePluginDir).")
	pluginDirNoExec = kind("plugin-dir-noexec", Error,
		[]string{callFailed, notStarted},
		"mount --bind {subject} {subject} && mount -o remount,bind,exec {subject}; or choose another directory (the kubelet's volumePluginDir).")
	pluginDirReadOnly = kind("plugin-dir-read-only", Warning, nil,
		"What is installed works. To install or update drivers choose a writable directory and make it the kubelet's volumePluginDir.")
	pluginDirUntrusted = kind("plugin-dir-untrusted", Warning, nil,
		"The kubelet runs what lies there as root. chown root {subject}; chmod go-w {subject}.")
	pluginDirElsewhere = kind("plugin-dir-elsewhere", Warning,
		[]string{noPlugin},
		"Drivers there are not seen by this kubelet. Install them into its own plugin directory, then remove {subject}.")
	kubeletNotRestarted = kind("kubelet-not-restarted", Warning, nil,
		"The file was changed after the kubelet's start. Restart the kubelet for it to count, or undo the change before the next restart makes drivers vanish.")
	kubeletDirMismatch = kind("kubelet-dir-mismatch", Error,
		[]string{"flex2csi was started for the kubelet's directory"},
		"Give the daemon --kubelet-dir {subject}, as the kubelet has it, and restart it. In a container that directory has to be mounted at the same path.")
	attachDetachOff = kind("controller-attach-detach-off", Warning,
		[]string{"can only get individual resources of this type"},
		"Some FlexVolume drivers of old wanted this. CSI drivers that attach do not work on this node with it: the node may not create VolumeAttachments. Set enableControllerAttachDetach: true in the kubelet's configuration, drain the node, and restart the kubelet.")
)

// What is found in the plugin directory.
var (
	broken = []string{badOutput, callFailed, probingFailed, "error creating Flexvolume plugin from directory"}

	driverFine         = kind("driver", OK, nil, "")
	driverNoExecutable = kind("driver-executable-missing", Error,
		append(broken, notStarted),
		"Once something has changed there under a running kubelet, it tries to run it at each operation on any volume of the node, and logs each failure. If the driver is not wanted any more: rm -r {subject}. Otherwise install it again.")
	driverNotExecutable = kind("driver-not-executable", Error,
		append(broken, notStarted),
		"chmod 0755 the executable; the kubelet notices that by itself. If it is executable already, ask SELinux: ausearch -m avc -ts recent.")
	driverCannotStart = kind("driver-cannot-start", Error,
		append(broken, notStarted),
		"Install a build for this machine's processor that is linked statically (CGO_ENABLED=0), or what the script wants to be run by. If the driver is not wanted any more, remove its directory.")
	driverUntrusted = kind("driver-untrusted", Warning, nil, "The kubelet runs it as root. chown root {subject}; chmod go-w {subject}.")
	driverNoVendor  = kind("driver-name", Warning,
		[]string{noPlugin},
		"A directory is called <vendor>~<driver>, with an executable <driver> in it. Others are called at their own risk: kube-controller-manager takes such names apart at the second slash. Install the driver under a proper name, and remove {subject} when no PersistentVolume names it.")
	driverLink = kind("driver-dir-is-link", Warning,
		[]string{noPlugin},
		"The kubelet ignores it when it starts. Move the directory itself to that place.")
	dotFolder = kind("plugin-dir-dot-folder", Warning,
		broken,
		"Only names that begin with a dot themselves are ignored: if the folder was there when the kubelet started, any change to another file in it makes the kubelet run an executable that is not there, at each volume operation until it is restarted. rm -r {subject}.")
	strayFile = kind("plugin-dir-stray-file", Info,
		broken,
		"If it is changed, the kubelet takes it for a driver and fails to run it until it is restarted. Move it elsewhere.")
	driverWritten = kind("driver-dir-written", Warning, nil,
		"Each change there makes the kubelet run init again under a lock that all volume operations need. Keep logs and temporary files out of the plugin directory.")
	driverInitFails = kind("driver-init-fails", Error,
		broken,
		"The driver's volumes cannot be mounted, and the kubelet runs init again and again. Mend the driver or, if it is not wanted any more, remove its directory.")
	driverInitSlow = kind("driver-init-slow", Warning, nil,
		"The kubelet holds a lock meanwhile that the operations on all volumes of the node need. Mend or remove that driver.")
)

// What is found about drivers of ours and what they need.
var (
	overwritten       = []string{"another program was put in its place"}
	driverOverwritten = kind("driver-overwritten", Error,
		overwritten,
		"The kubelet calls that program, usually the vendor's: its installer copies it at each start. Volumes that the bridge has mounted are not unstaged and detached while it is there. Stop the installer (flex2csi doctor --on=cluster names DaemonSets), then install again: kubectl -n flex2csi rollout restart ds/flex2csi-node, or flex2csi install on the node. If you gave the place back with uninstall --restore, delete the DaemonSet of flex2csi.")
	installInterrupted = kind("install-interrupted", Warning, nil,
		"An installer was killed. flexdriver install finishes or undoes it; so does flexdriver uninstall.")
	driverUnconfigured = kind("driver-not-configured", Error,
		[]string{"the driver is not configured"},
		"flexdriver install --driver … writes the configuration again. Pods can end meanwhile.")
	driverSocket = kind("driver-socket-differs", Error,
		[]string{"flex2csi does not listen at"},
		"Give the daemon the --socket and --state-dir that the driver has, or install the driver with the daemon's.")
	driverVersion = kind("driver-version-differs", Info,
		[]string{"speaks version"},
		"That is normal during an update. Releases that do not understand each other say so in the second place: bring both to one then.")
	driverNotInstalled = kind("driver-not-installed", Error,
		[]string{noPlugin},
		"flexdriver install --backend=csi --driver {subject} --volume-plugin-dir <the kubelet's>")
	driverNotInManager = kind("driver-not-in-controller-manager", Error,
		[]string{"unmounted volumes=[", "timed out waiting for the condition"},
		"It is installed with --attach, so kube-controller-manager has to run it, and there is no event when it cannot: pods stay in ContainerCreating. Mount the plugin directory into its container at its --flex-volume-plugin-dir (kubeadm since 1.36 does not), or install the driver without --attach.")
	controllerAbsent = kind("controller-absent", Error, []string{"flex2csi does not listen at"}, "Run flex2csi controller on each control-plane node, with its socket where kube-controller-manager sees it: docs/controller.md.")
	driverAttaches   = kind("driver-attach", Info, nil, "That kube-controller-manager has it cannot be seen from this node. Run doctor on a control-plane node as well, or install the driver without --attach, which needs nothing there.")
	driverNotServed  = kind("driver-not-served", Error,
		[]string{"the configuration of flex2csi on this node has no driver"},
		"Add {subject} to the drivers of the BridgeConfiguration, vendor and all, and restart the daemon.")
)

// What is found about the daemon and its configuration.
var (
	configurationFine   = kind("configuration", OK, nil, "")
	configurationBroken = kind("configuration-broken", Error, nil, "The daemon does not start with it. Mend what is named; flex2csi check --config {subject} shows the same.")
	configurationNote   = kind("configuration-note", Info, nil, "")
	daemonFine          = kind("daemon", OK, nil, "")
	daemonAbsent        = kind("daemon-absent", Error,
		[]string{"flex2csi does not listen at"},
		"Look why its pod does not run on this node: kubectl get pods -o wide, kubectl logs --previous. In a container the socket's directory has to be a hostPath. Until it is back pods can end, and no pod with such a volume can start.")
	daemonSilent = kind("daemon-unreachable", Error,
		[]string{"has not answered in time", "is not sent there", "takes no more calls", "speaks version"},
		"The message says what is wrong with the daemon or its socket; docs/troubleshooting.md has each of them. If it hangs, its log says in what.")
	daemonDraining = kind("daemon-draining", Info, nil, "It ends, or is being replaced. If it stays so, look for what it waits for: flex2csi status.")
	daemonVersion  = kind("daemon-version-differs", Info, []string{"speaks version"}, "That is normal during an update, and no problem as long as they understand each other.")
	daemonNoAPI    = kind("daemon-without-api", Warning, nil, "What is attached stays so, what needs no attachment is mounted, and everything can be unmounted; what has to be attached waits. See the network policy, the daemon's ServiceAccount and the API server.")
	driverTrouble  = kind("csi-driver-trouble", Warning,
		[]string{"is its pod running on this node?"},
		"The error is what the daemon met last. See the pod of the CSI driver on this node, and its log.")
	volumeStuck = kind("volume-stuck", Warning,
		[]string{"still in progress after"},
		"flex2csi status {subject} -o wide shows it whole. The daemon repeats the step until the CSI driver gives a final answer: its log says why it does not.")
	callFails = kind("call-fails", Warning,
		[]string{"command failed, status: Failure, reason:"},
		"The message is the reason; docs/troubleshooting.md has each of them by its words.")
	volumeLost = kind("volume-without-record", Warning,
		[]string{"a pod has a volume without a record"},
		"The state directory was lost, or is another one. The pod keeps its volume; deleting and starting it again makes a record. Without that the volume stays staged, and attached, when the pod goes.")
	unmountPending = kind("unmount-not-worked-off", Warning,
		[]string{"a pending unmount could not be completed"},
		"The volume is unmounted for the pod, and not yet unstaged and detached. The daemon does that when the CSI driver is available: check why it is not.")
	stateBroken = kind("state-file-broken", Warning,
		[]string{"a state file is broken"},
		"What it said is known from the version before or from the mount table. Look whether the disk is healthy, then remove the file that was put aside.")
)
