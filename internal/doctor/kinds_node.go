package doctor

// What is found about CSI drivers on the node.
var (
	csiFine          = kind("csi-driver", OK, nil, "")
	csiNotRegistered = kind("csi-not-registered", Error,
		[]string{"no driver of this name is registered below", notRegistered},
		"See whether the driver's node pod runs on this node, what its node-driver-registrar says, and whether csiDriver is what the driver calls itself (kubectl get csidrivers). A fixed endpoint does without registration.")
	csiNoAnswer = kind("csi-no-answer", Error,
		[]string{"is its pod running on this node?", "no process answers at"},
		"See the driver's pod on this node, and its log. A socket that was left over goes when the driver starts again.")
	csiWrongName = kind("csi-wrong-name", Error,
		[]string{"the driver at this socket is"},
		"endpoint and csiDriver in the configuration do not belong together. Nothing is asked of the wrong driver.")
	csiNotReady = kind("csi-not-ready", Warning,
		[]string{"says that it is not ready yet"},
		"The driver's own word (Probe). Its log says what it waits for.")
	csiNoAttach = kind("csi-not-attached", Error,
		[]string{"look at controllerEndpoint"},
		"The driver attaches volumes, and this configuration never asks it to. Set attach: Auto, and configure a controllerEndpoint or access to Kubernetes: docs/bridge-configuration.md. attach: None is for drivers that need no attach.")
	registrationDead = kind("registration-left-over", Warning,
		[]string{"RegisterPlugin error -- dial failed at socket"},
		"Left over by a registrar that was killed. The kubelet tries it again and again; rm {subject}, if its driver is not just starting.")
)

// What is found about mounts.
var (
	corrupted = []string{"transport endpoint is not connected", "stale file handle", "is dead, most likely since the driver was restarted", "UnmountVolume.TearDown failed"}

	propagationFine   = kind("propagation", OK, nil, "")
	kubeletDirPrivate = kind("kubelet-dir-not-shared", Error,
		[]string{"is not a shared mount"},
		"Containers cannot give mounts back to the node (mountPropagation: Bidirectional). mount --bind {subject} {subject} && mount --make-rshared {subject} before the kubelet and the container runtime start; systemd makes / shared by itself, so look who undid that (MountFlags= in a unit).")
	daemonPropagation = kind("daemon-mount-propagation", Error,
		[]string{"mountPropagation: Bidirectional"},
		"In the daemon's DaemonSet mount the kubelet's directory as a hostPath at the same path with mountPropagation: Bidirectional, and make the container privileged.")
	csiPropagation = kind("csi-mount-propagation", Error,
		[]string{"mountPropagation: Bidirectional"},
		"The driver's mounts are not visible outside of its container: pods get an empty directory. In the driver's DaemonSet mount the kubelet's directory as a hostPath at the same path with mountPropagation: Bidirectional. (A driver that enters the node's namespace to mount does not need this.)")
	mountInvisible = kind("mount-not-visible", Error,
		[]string{"mountPropagation: Bidirectional"},
		"The daemon believes that the pod has the volume, and for the kubelet there is no mount: what the pod writes goes to the node's own disk. Delete the pod; then see the findings on propagation.")
	mountsFine     = kind("mounts", OK, nil, "")
	mountCorrupted = kind("mount-corrupted", Error,
		corrupted,
		"The process or server behind it is gone. Pods that use it have to be deleted, or repairInUse set for the driver. If the pod is gone: umount {subject} (umount -l, if it is busy).")
	mountHangs = kind("mount-hangs", Error,
		append(corrupted, "timed out waiting for the condition"),
		"What is behind it does not answer, and whatever touches it hangs as well. Bring the server back. If it will not come back: umount -f {subject}, or umount -l.")
	mountStacked = kind("mount-stacked", Warning,
		[]string{"device or resource busy"},
		"Something was mounted over a mount that was there. Each needs an umount; the bridge's own unmount removes all of them.")
	mountDeleted = kind("mount-source-deleted", Error, nil,
		"The directory that was bound there has been deleted at its source: what is written into it is lost when the pod ends. Delete the pod.")
	mountLeft = kind("mount-without-pod", Warning,
		[]string{"orphaned pod", "volume paths are still present on disk", "Orphaned pod found, but volumes are not cleaned up"},
		"The pod's directory goes when this is unmounted. With the driver's executable in place: <driver> unmount {subject}; then see why the kubelet did not (its log has the volume's name).")
	mountStale = kind("mount-stale", Warning,
		[]string{"still mounted by other references", "device or resource busy"},
		"No pod uses it any more. The kubelet forgets such a mount when it is restarted at the wrong moment; the bridge undoes its own after --grace. If it stays: see flex2csi status for the volume, and unmount it when it is not there.")
	filesystemReadOnly = kind("filesystem-went-read-only", Warning,
		[]string{"read-only file system"},
		"The kernel found the filesystem damaged, or its disk failed: dmesg -T | grep -i -e ext4 -e xfs -e btrfs -e 'I/O error'. Stop the pods, let fsck look at it, then start them again.")
)

// What is found in the directories of pods.
var (
	podsFine       = kind("pods", OK, nil, "")
	volumeDirFiles = kind("volume-dir-not-empty", Warning,
		[]string{"orphaned pod", "but failed to rmdir() volume at path", "directory not empty"},
		"Nothing is mounted there, and there are files: a process wrote to the node's own disk instead of the volume. If the pod runs, delete it. Save the files; when the directory is empty the kubelet removes it. (Some drivers mount nothing and write files: then this is normal.)")
	podOrphaned = kind("pod-orphaned", Info,
		[]string{"orphaned pod"},
		"The kubelet removes it by itself within minutes; if not, its log says for the pod's UID why.")
)
