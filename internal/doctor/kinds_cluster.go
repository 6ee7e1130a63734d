package doctor

// What is found in the cluster.
var (
	apiFine        = kind("api", OK, nil, "")
	apiUnreachable = kind("api-unreachable", Error, nil,
		"What needs no attachment is mounted all the same, and everything can be unmounted. See the kubeconfig, and the API server.")
	apiSlow    = kind("api-slow", Warning, nil, "See the load of the API server and of etcd.")
	releaseOld = kind("kubernetes-old", Info, nil,
		"docs/limits.md has what works with which release. Install flex2csi with components/kubernetes-before-1.30; the chart does it by itself: docs/rbac.md, Before Kubernetes 1.30.")
	versionSkew = kind("version-skew", Warning, nil,
		"A kubelet may be three minor versions older than the API server, and never newer. Bring the node up to date.")
	nodeMissing = kind("node-missing", Error, nil,
		"Kubernetes has no node of that name: see --node-name here and in the daemon's flags, and kubectl get nodes.")
	nodeNotReady  = kind("node-not-ready", Warning, nil, "kubectl describe node {subject}.")
	objectFine    = kind("csidriver", OK, nil, "")
	objectMissing = kind("csidriver-missing", Warning,
		[]string{"timed out waiting for external-attacher of"},
		"Without a CSIDriver object Kubernetes takes for granted that the driver wants its volumes attached, and knows nothing of its other wishes. Install the driver's own.")
	objectAttach = kind("csidriver-attach-differs", Error, nil,
		"CSIDriver {subject} says attachRequired: true, and the bridge's configuration says attach: None: the driver stages volumes that were never attached. Remove attach: None.")
	objectPanics = kind("csidriver-panics", Error, nil,
		"After its next start on a node where such a volume is attached, the driver mounts and unmounts none there. Set attach: None for {subject}, and start the daemons again; then stop the pods with its volumes for once, or migrate: what is attached stays so until then. docs/limits.md, Drivers that attach.")
	nodeObjectFine  = kind("csinode", OK, nil, "")
	nodeObjectLacks = kind("csinode-driver-missing", Error,
		[]string{"does not contain driver", notRegistered},
		"The driver is not registered on this node: nothing can be attached to it. See the driver's node pod there and its node-driver-registrar.")
	pluginDirsDiffer = kind("plugin-dirs-differ", Info, nil,
		"A DaemonSet that installs into one directory misses some nodes. Install per group of nodes, or give all kubelets the same volumePluginDir.")
	pluginDirWriter = kind("plugin-dir-daemonset", Warning,
		overwritten,
		"If DaemonSet {subject} installs a driver that flex2csi serves, stop it.")
	inlineDenied = kind("inline-volumes-denied", OK, nil, "")
	inlineOpen   = kind("inline-volumes-open", Warning, nil,
		"Users who may create pods can name any volume of {subject} there; the daemons refuse what they can check. Apply install/policy/pods.yaml (Helm: policy.pods.enabled), with validationActions Deny and the ConfigMap of the configuration as its parameter: docs/rbac.md. It needs Kubernetes 1.30; before that, use another admission controller.")
	driversConfined = kind("attachment-drivers-confined", OK, nil, "")
	driversOpen     = kind("attachment-drivers-open", Warning, nil,
		"A stolen token attaches volumes of every CSI driver of the cluster. Apply install/policy/attachments.yaml (Helm: policy.enabled), with validationActions Deny, the ConfigMap of the configuration as the parameter of flex2csi-attachment-drivers, and no '*' in its variable others (Helm: policy.drivers): docs/rbac.md.")
	attachmentsOpen = kind("attachments-open", Warning, nil,
		"A stolen token attaches and detaches the volumes of others. Apply install/policy/attachments.yaml (Helm: policy.enabled), with validationActions Deny: docs/rbac.md. It needs Kubernetes 1.30; before that, use components/kubernetes-before-1.30, with which nodes do not attach (Helm: leave policy.enabled true).")
	attachDenied = kind("attachment-denied", Error, nil,
		"No volume of {subject} is attached. Write the configuration as in docs/bridge-configuration.md, one field on a line and not in braces, in the ConfigMap that is the parameter of the policy; or put the driver into the policy's variable others: docs/rbac.md.")
)

// What kube-controller-manager says of a volume that another node has
// (pkg/controller/volume/attachdetach/reconciler/reconciler.go), up to 1.36 and
// from 1.37 on.
const (
	multiAttachTo36    = "Multi-Attach error for volume"
	multiAttachSince37 = "Volume is already exclusively attached to one node, waiting on detach"
)

// What is found about VolumeAttachments.
var (
	multiAttached = []string{multiAttachTo36, multiAttachSince37}
	waiting       = []string{"timed out waiting for external-attacher of", "AttachVolume.Attach failed for volume"}

	attachmentsFine  = kind("attachments", OK, nil, "")
	attachmentNoNode = kind("attachment-node-gone", Error,
		multiAttached,
		"The volume cannot be attached anywhere else. The sweeper of flex2csi controller deletes it; without one: kubectl delete volumeattachment {subject}, after you made sure that the machine does not write to the disk any more.")
	attachmentNoUser = kind("attachment-unused", Warning,
		multiAttached,
		"The sweeper of flex2csi controller deletes what kube-controller-manager has forgotten; the daemon of the node, when it starts, what it has no record of. See why they do not run, or do not reach the API server. By hand: kubectl delete volumeattachment {subject}.")
	attachmentLost = kind("attachment-lost", Error,
		[]string{"input/output error", multiAttachTo36, multiAttachSince37},
		"The daemon creates it again. If this repeats, another component deletes attachments that are in use. Check who has the right to delete VolumeAttachments, and whether a CSI PersistentVolume has the same volumeHandle.")
	attachmentNoRecord = kind("attachment-without-record", Warning,
		multiAttached,
		"The daemon looks for such attachments when it starts. If it stays after a restart of the daemon, and no pod of the node has the volume, as a FlexVolume or a CSI one: kubectl delete volumeattachment {subject}.")
	attachmentFails = kind("attachment-fails", Error,
		waiting,
		"The text is the CSI driver's own. It is tried again by the external-attacher; the driver's controller pod has the log.")
	attachmentWaits = kind("attachment-waits", Error,
		waiting,
		"The external-attacher has not processed it. Check whether it runs in the driver's controller pod, whether it is the leader, and its log.")
	attachmentStays = kind("attachment-not-deleted", Error,
		multiAttached,
		"It was deleted, and still has a finalizer: the external-attacher does not detach, or is no longer installed. Check its log. Only when the volume is surely detached, or the attacher will never come back: kubectl patch volumeattachment {subject} --type=merge -p '{\"metadata\":{\"finalizers\":null}}'.")
	attachmentTwice = kind("attachment-on-two-nodes", Warning,
		multiAttached,
		"A volume for one node is attached to two, or about to be. See which of the pods is wanted, and delete the other.")
	attachmentLimit = kind("attachment-limit", Warning,
		[]string{"exceed max volume count", "ResourceExhausted"},
		"No more volumes of the driver fit on that node. Move pods, or raise the driver's limit if the machine has room.")
	volumeOfVendor = kind("volume-attached-by-vendor", Error,
		[]string{"attacherDetacher.DetachVolume started", "DetachVolume.FindAttachablePluginByName failed"},
		"A vendor's FlexVolume driver with attach: true is in kube-controller-manager, and the nodes have the bridge with attach: false. kube-controller-manager detaches {subject} when no pod wants it as a FlexVolume: while the bridge unmounts it, and under a running pod once {subject} has become a CSI volume. Do not migrate it. Take the driver out of kube-controller-manager and remove the entry: docs/migrate.md, A vendor's driver in kube-controller-manager.")
)

// What any check may find.
var hangingCheck = kind("check-hangs", Warning, nil,
	"Something on this node does not answer: a disk, a server, a process. See what hangs with: ps -eo pid,stat,wchan:32,args | awk '$2 ~ /D/'. A longer --timeout tells slow from dead.")
