package migrate_test

import (
	"maps"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// ours is the name that a VolumeAttachment of the volume has in the cases.
const ours = "csi-f4c24cb450d8bb50ed94a9fe7498f9ee73f8350b12e34a249e60cba8d4711a1a"

// clusterCases are the inputs of testdata/cases, from public bug reports, and others of their
// kinds.
func clusterCases() map[string]clusterCase {
	all := map[string]clusterCase{}
	for _, some := range []map[string]clusterCase{attachmentCases(), ownerCases(), classCases(), expansionCases(), groupCases(), shareCases()} {
		maps.Copy(all, some)
	}
	return all
}

// attachmentCases: a left-over VolumeAttachment with the control plane's name (kubernetes PR
// 141541, external-attacher#235), one that is not detached for days (linstor-csi#52), one of a
// driver that attaches nothing (rook#10692), and pods on two nodes (ceph-csi#3299).
func attachmentCases() map[string]clusterCase {
	const foreign = "Fails attachments: VolumeAttachment " + ours + "…control plane…node node-1…PersistentVolume trial-pv"
	return map[string]clusterCase{
		"live-foreign": {file: "live-foreign", want: []string{"pv1: no", foreign + "…; delete"}, never: []string{"makes one"}},
		"live-node2":   {file: "live-node2", want: []string{"pv1: no", "OK attachments: …" + ours, "Fails attachments: VolumeAttachment csi-1c67…node node-2…PersistentVolume trial-pv"}},
		"va-other":     {file: "va-other", want: []string{"pv1: no", foreign}},
		"va-other-err": {file: "va-other-err", want: []string{"pv1: no", foreign + `…not attached…PersistentVolume "trial-pv" is marked for deletion`}},
		"foreign handle": {
			file: "live-foreign", edits: []string{"    persistentVolumeName: trial-pv", "    inlineVolumeSpec: {csi: {driver: disk.csi.example.com, volumeHandle: vol-9}}"},
			want: []string{"pv1: no", "Fails attachments: VolumeAttachment " + ours + "…volume vol-9"},
		},
		"foreign, and Terminating": {
			file: "live-foreign", edits: []string{"  finalizers:\n  - external-attacher/disk-csi-example-com", "  deletionTimestamp: '2026-11-20T00:00:00Z'\n  finalizers:\n  - external-attacher/disk-csi-example-com", "status:\n  attached: true", "status:\n  attached: true\n  detachError: {message: no such node}"},
			want: []string{foreign + "…deleted since 2026-11-20T00:00:00Z…no such node"},
		},
		"of the volume itself, and without its finalizer": {
			file: "live-foreign", edits: []string{"  finalizers:\n  - external-attacher/disk-csi-example-com\n", "", "persistentVolumeName: trial-pv", "persistentVolumeName: pv1"},
			want: []string{"pv1: no", "Fails attachments: VolumeAttachment " + ours + "…names the PersistentVolume, which is no CSI volume; delete it"},
		},
		"foreign, of a node that is gone": {
			file: "va-other", edits: []string{ours, objects.AttachmentName("vol-1", "disk.csi.example.com", "node-9"), "nodeName: node-1\n  source", "nodeName: node-9\n  source"},
			want: []string{"pv1: no", "Fails attachments: …node node-9…trial-pv"},
		},
		"live-stuck":         {file: "live-stuck", want: []string{"Fails attachments: VolumeAttachment csi-1c67…deleted since 2026-11-20T00:00:00Z (8 days)…instance node-2 not found…node node-2"}, never: []string{"in a moment"}},
		"stuck, and silent":  {file: "live-stuck", edits: []string{"  detachError:\n    message: 'rpc error: code = Internal desc = instance node-2 not found'\n    time: '2026-11-28T00:00:00Z'", ""}, want: []string{"Fails attachments: …(8 days)…no detachError"}, never: []string{"in a moment"}},
		"just being deleted": {file: "live-stuck", edits: []string{"2026-11-20T00:00:00Z", "2026-11-28T11:59:50Z"}, want: []string{"Fails attachments: …deleted since 2026-11-28T11:59:50Z (10s)…; plan again in a moment"}},
		"stuck on the pod's node": {
			file: "live-stuck", edits: []string{"  labels:\n    app.kubernetes.io/managed-by: flex2csi\nspec", "  deletionTimestamp: '2026-11-21T12:00:00Z'\n  finalizers: [x/y]\nspec"},
			want: []string{"Fails attachments: VolumeAttachment " + ours + "…(7 days)…node node-1"},
		},
		"live-noatt":                  {file: "live-noatt", want: []string{"Note attachments: VolumeAttachment " + ours + "…attachRequired: false"}, never: []string{"OK attachments", "adopts it"}},
		"not attached, and unmanaged": {file: "live-noatt", edits: []string{"  labels:\n    app.kubernetes.io/managed-by: flex2csi\n", ""}, want: []string{"Note attachments: …" + ours}, never: []string{"OK attachments"}},
		"not attached, elsewhere":     {file: "live-noatt", edits: []string{"nodeName: node-1\n  source", "nodeName: node-2\n  source"}, want: []string{"Note attachments: …node node-2"}, never: []string{"OK attachments", "Fails attachments"}},
		"nothing is attached":         {file: "live-noatt", edits: []string{"kind: VolumeAttachment", "kind: CSIStorageCapacity"}, want: []string{"OK attachments: CSI driver disk.csi.example.com attaches nothing"}},
		"rwo2":                        {file: "rwo2", want: []string{"Decide access-mode: …node-1, node-2…ReadWriteOnce"}, never: []string{"makes one"}},
		"three pods, two nodes":       {file: "rwo2", edits: []string{"", "apiVersion: v1\nkind: Pod\nmetadata: {name: web-c, namespace: shop}\nspec: {nodeName: node-2, containers: [{name: c, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}\nstatus: {phase: Running}"}, want: []string{"Decide access-mode: …2 nodes"}},
		"two nodes, once in a pod":    {file: "rwo2", edits: []string{"  - ReadWriteOnce\n", "  - ReadWriteOncePod\n"}, want: []string{"Decide access-mode: …node-1, node-2"}},
		"two nodes, many":             {file: "rwo2", edits: []string{"  - ReadWriteOnce\n", "  - ReadWriteMany\n"}, never: []string{"Decide access-mode"}},
		"two nodes, not attached":     {file: "rwo2", edits: []string{"attachRequired: true", "attachRequired: false"}, never: []string{"Decide access-mode"}},
	}
}

// ownerCases: Terraform's provider is the field manager HashiCorp
// (terraform-provider-kubernetes#1016). A StatefulSet deletes its claims when it is scaled
// (openshift-docs PR 66118).
func ownerCases() map[string]clusterCase {
	manager := func(manager, operation string) []string {
		return []string{"manager: HashiCorp\n    operation: Update", "manager: " + manager + "\n    operation: " + operation}
	}
	mark := func(mark string) []string {
		return []string{"  managedFields:", "  " + mark + "\n  managedFields:", "HashiCorp", "kubectl-create"}
	}
	return map[string]clusterCase{
		"tf2":                    {file: "tf2", want: []string{"Decide owners: …Terraform (field manager HashiCorp)"}},
		"Terraform's binary":     {file: "tf2", edits: manager("terraform-provider-kubernetes_v2.23.0_x5", "Update"), want: []string{"Decide owners: …Terraform"}},
		"Pulumi's binary":        {file: "tf2", edits: manager("pulumi-resource-kubernetes", "Update"), want: []string{"Decide owners: …Pulumi"}},
		"a configured manager":   {file: "tf2", edits: manager("platform-team", "Apply"), want: []string{"Decide owners: …field manager platform-team"}},
		"a composed resource":    {file: "tf2", edits: manager("apiextensions.crossplane.io/composed/5ac5f2", "Apply"), want: []string{"Decide owners: …Crossplane"}},
		"kubectl's own apply":    {file: "tf2", edits: manager("kubectl", "Apply"), want: []string{"Note owners: …kubectl apply"}, never: []string{"Decide owners"}},
		"kubectl create":         {file: "tf2", edits: manager("kubectl-create", "Update"), never: []string{"owners"}},
		"an instance's label":    {file: "tf2", edits: mark("labels: {app.kubernetes.io/instance: storage}"), want: []string{"Note owners: …app.kubernetes.io/instance=storage…Argo CD"}, never: []string{"Decide owners"}},
		"a status":               {file: "tf2", edits: []string{"operation: Update", "operation: Update\n    subresource: status"}, never: []string{"owners"}},
		"a provisioner's":        {file: "tf2", edits: []string{"  managedFields:", "  annotations: {pv.kubernetes.io/provisioned-by: example.com/disk}\n  managedFields:"}, never: []string{"owners"}},
		"Flux 1":                 {file: "tf2", edits: mark("annotations: {fluxcd.io/sync-checksum: abc}"), want: []string{"Decide owners: …Flux"}},
		"Helm 2":                 {file: "tf2", edits: mark("labels: {heritage: Tiller, release: db}"), want: []string{"Decide owners: …Helm"}},
		"Crossplane's composite": {file: "tf2", edits: mark("labels: {crossplane.io/composite: db-x}"), want: []string{"Decide owners: …Crossplane"}},
		"scaled":                 {file: "scaled", want: []string{"Decide claim-owner: StatefulSet/db deletes claim shop/data-db-0 when it is scaled down"}},
		"rookclass":              {file: "rookclass", want: []string{"Decide reclaim-policy: …ceph-csi does not…delete"}, never: []string{"deleted with the claim by CSI driver", "goes by attach: None"}},
		"Rook, and it retains":   {file: "rookclass", edits: []string{"persistentVolumeReclaimPolicy: Delete", "persistentVolumeReclaimPolicy: Retain"}, want: []string{"OK reclaim-policy"}},
		"Rook, made by hand":     {file: "rookclass", edits: []string{"annotations: {pv.kubernetes.io/provisioned-by: ceph.rook.io/block}, ", ""}, want: []string{"Decide reclaim-policy: …no provisioner"}, never: []string{"deleted with the claim by"}},
		"a driver that deletes":  {file: "selector", edits: []string{"persistentVolumeReclaimPolicy: Retain", "persistentVolumeReclaimPolicy: Delete"}, want: []string{"Decide reclaim-policy: …; …deleted with the claim by CSI driver disk.csi.example.com"}},
	}
}

// classCases: the class is in an annotation, of the volume, of the claim or of both
// (kubernetes#41381, rook#756).
func classCases() map[string]clusterCase {
	related, differ := []string{"Related StorageClass flex"}, []string{"Note storage-class"}
	return map[string]clusterCase{
		"pvann":                   {file: "pvann", want: related, never: differ},
		"pvann0":                  {file: "pvann0", want: related, never: differ},
		"mixed":                   {file: "mixed", want: related, never: differ},
		"beta":                    {file: "beta", want: []string{"Related StorageClass flex", "Related StatefulSet shop/db, claim template data"}, never: differ},
		"annotation before field": {file: "mixed", edits: []string{"class: flex\nspec", "class: other\nspec"}, want: []string{`Note storage-class: …class "other" and the volume "flex"`}},
		"a claim to come":         {file: "pvann0", edits: []string{"kind: PersistentVolumeClaim\nmetadata:\n  name: data\n", "kind: PersistentVolumeClaim\nmetadata:\n  name: other\n"}, want: []string{"Fails claim: claim shop/data is not there; create the claim"}},
		"empty annotation":        {file: "pvann0", edits: []string{"bind-completed: 'yes'", "bind-completed: 'yes'\n    volume.beta.kubernetes.io/storage-class: ''"}, want: []string{`Note storage-class: …class "" and the volume "flex"`}},
		"volume's annotation":     {file: "pvann0", edits: []string{"  name: pv1\n", "  name: pv1\n  annotations: {volume.beta.kubernetes.io/storage-class: gold}\n"}, want: []string{`Note storage-class: …class "flex" and the volume "gold"`}, never: related},
	}
}

// expansionCases: a FlexVolume that was to grow (oci-cloud-controller-manager#397).
func expansionCases() map[string]clusterCase {
	const pending = "  - type: FileSystemResizePending"
	conditions := "  conditions:\n" + pending + "\n    status: 'True'\n    message: Waiting for user to (re-)start a pod to finish file system resize of\n      volume on node.\n"
	return map[string]clusterCase{
		"ocigrow":               {file: "ocigrow", want: []string{"Fails expansion: …FileSystemResizePending…; …kubelet of node node-1…expandfs…oracle/oci"}},
		"grows, without a pod":  {file: "ocigrow", edits: []string{"phase: Running", "phase: Succeeded"}, want: []string{"Fails expansion: …; …kubelet of the node of its next pod…expandfs"}},
		"its storage grows":     {file: "ocigrow", edits: []string{pending, "  - type: Resizing"}, want: []string{"Fails expansion: …Resizing…; kube-controller-manager"}},
		"wants more":            {file: "ocigrow", edits: []string{conditions, ""}, want: []string{"Fails expansion: …50Gi…100Gi; kube-controller-manager"}},
		"cannot grow":           {file: "ocigrow", edits: []string{conditions, "  allocatedResourceStatuses: {storage: NodeResizeInfeasible}\n", "storage: 50Gi", "storage: 100Gi"}, want: []string{"Fails expansion: …NodeResizeInfeasible…; …expandfs"}},
		"size before on volume": {file: "ocigrow", edits: []string{conditions, "", "storage: 50Gi", "storage: 100Gi", "  name: ocid1.volume.oc1.me-jeddah-1.abz\n", "  name: ocid1.volume.oc1.me-jeddah-1.abz\n  annotations: {volume.alpha.kubernetes.io/pre-resize-capacity: 50Gi}\n"}, want: []string{"Fails expansion: …pre-resize-capacity…; …expandfs"}},
		"has grown":             {file: "ocigrow", edits: []string{conditions, "", "storage: 50Gi", "storage: 100Gi"}, want: []string{"OK expansion"}},
	}
}

// groupCases: after the migration the kubelet no longer gives the files to the fsGroup
// (vsphere-csi-driver#370, aws-ebs-csi-driver#1365).
func groupCases() map[string]clusterCase {
	const policy = "fsGroupPolicy: ReadWriteOnceWithFSType"
	none := []string{"Note pods: …fsGroup"}
	return map[string]clusterCase{
		"fsgroup":                {file: "fsgroup", want: []string{"Note pods: …shop/db-0…fsGroup…ReadWriteOnceWithFSType…no fsType"}},
		"fsgroup-rwo":            {file: "fsgroup-rwo", want: []string{"Note pods: …fsGroup…no fsType"}},
		"live-fsg":               {file: "live-fsg", want: []string{"Note pods: …fsGroup…no fsType"}, never: []string{"Expect: the pod has an fsGroup"}},
		"fsGroup of many nodes":  {file: "fsgroup", edits: []string{"    driver: example.com/disk\n", "    driver: example.com/disk\n    fsType: ext4\n"}, want: []string{"Note pods: …fsGroup…not of one node"}},
		"no fsGroup at all":      {file: "fsgroup-rwo", edits: []string{policy, "fsGroupPolicy: None"}, want: []string{"Note pods: …fsGroup…fsGroupPolicy None"}},
		"fsGroup by File":        {file: "fsgroup", edits: []string{policy, "fsGroupPolicy: File"}, never: none},
		"fsGroup, as before":     {file: "live-fsg", edits: []string{"    driver: example.com/disk\n", "    driver: example.com/disk\n    fsType: ext4\n"}, want: []string{"Expect: the pod has an fsGroup"}, never: none},
		"fsGroup, and no policy": {file: "fsgroup", edits: []string{"  " + policy + "\n", ""}, want: []string{"Note pods: …fsGroup…no fsType"}},
	}
}

// shareCases: two volumes of one share (csi-driver-smb#353, ceph-csi#2238).
func shareCases() map[string]clusterCase {
	return map[string]clusterCase{
		"smb2":                   {file: "smb2", want: []string{"Note handle: …PersistentVolume b…same…node", "Note handle: …PersistentVolume a…same"}},
		"nfs":                    {file: "nfs", want: []string{"Note handle: …PersistentVolume b…same"}},
		"no vendor":              {file: "nfs", edits: []string{"driver: k8s/nfs", "driver: nfs"}, want: []string{`Fails mapping: driver name "nfs" has no vendor, which flex2csi does not support`}},
		"two shares":             {file: "smb2", edits: []string{"//fs1/media", "//fs1/other"}, never: []string{"Note handle"}},
		"two servers":            {file: "nfs", edits: []string{"10.1.1.1", "10.1.1.2"}, never: []string{"Note handle"}},
		"a share that is CSI":    {file: "smb2", edits: []string{"  flexVolume:\n    driver: fstab/cifs\n    fsType: cifs\n    secretRef:\n      name: cifs\n    options:\n      networkPath: //fs1/media\n      mountOptions: dir_mode=0755,file_mode=0644\nstatus:", "  csi: {driver: smb.csi.k8s.io, volumeHandle: 'a@fs1:media', volumeAttributes: {source: //fs1/media}}\nstatus:"}, want: []string{"Note handle: …PersistentVolume a…same"}},
		"two disks of one class": {file: "pvann", edits: []string{"", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv2}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], flexVolume: {driver: example.com/disk, options: {volumeID: vol-2}}}\nstatus: {phase: Available}"}, never: []string{"Note handle"}},
	}
}
