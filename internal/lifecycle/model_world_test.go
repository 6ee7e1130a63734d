package lifecycle

// The model of the world. A state is one value of world: two nodes with what their
// daemon, kubelet and CSI driver have, and the cluster. It can be compared, so that
// each is looked at once.

const (
	nodeCount = 2
	podCount  = 2
)

// A world is all that there is at one moment.
type world struct {
	nodes [nodeCount]node
	pods  [podCount]pod
	pv    pvState
	// away: the API server does not answer.
	away bool
	// grown: the volume has its new size; the filesystem has it, too (fsGrown).
	wanted, grown, fsGrown bool
	secret                 uint8 // version of those of NodeStageVolume
	left                   budget
}

// A budget is how much of what is bounded may still happen.
type budget struct {
	rpc, crash, restart, dead, reboot, away, driver, secret, swap, taken, leave, silent, spoiled, full, lost, renamed, recreated uint8
}

// deep is what a deep run adds: one more fault of each kind that the configuration has,
// and one at least of those that any may have.
func (b budget) deep() budget {
	more := func(n uint8) uint8 {
		if n > 0 {
			n++
		}
		return n
	}
	return budget{
		rpc: max(more(b.rpc), 1), crash: max(more(b.crash), 1), restart: max(more(b.restart), 1), leave: max(b.leave, 1),
		dead: more(b.dead), reboot: more(b.reboot), away: more(b.away), driver: more(b.driver), secret: more(b.secret),
		swap: more(b.swap), taken: more(b.taken), silent: more(b.silent), spoiled: more(b.spoiled),
		full: more(b.full), lost: b.lost, renamed: b.renamed, recreated: b.recreated,
	}
}

// A pvState is what the PersistentVolume is.
type pvState uint8

const (
	pvFlex pvState = iota
	pvGone
	pvCSI
)

// A podPhase is how far a pod is.
type podPhase uint8

const (
	podNone    podPhase = iota // not there yet
	podWanted                  // no container was made
	podRunning                 // its containers have the volume
	podEnding                  // deleted; the kubelet tears it down
	podDeleted                 // the API server has it no more
	podGone                    // its directory on the node is gone
)

// A pod uses the volume.
type pod struct {
	phase    podPhase
	expanded bool // the claim says the new size
	ran      bool // a container was made
}

func (p pod) alive() bool { return p.phase == podWanted || p.phase == podRunning }

func (p pod) dirThere() bool { return p.phase != podNone && p.phase != podGone }

// A belief is what the kubelet believes of a mount.
type belief uint8

const (
	notMounted belief = iota
	uncertain
	mounted
)

// A mnt is what is mounted at a path.
type mnt uint8

const (
	nothing mnt = iota
	alive
	dead
	bare   // a directory of the node's own disk, mounted by a driver that had nothing staged
	silent // it does not answer, for a while
)

// A node is one node of the cluster.
type node struct {
	// The daemon: its record in memory as all see it, that of the operation, and the one on
	// the disk. They differ after the bind, and where a write has failed.
	saved, mem, disk rec
	before           rec // what was on the disk before, kept where records are spoiled
	full             fullness
	lost             [podCount]bool // published, and no record has it
	op               op
	down             bool
	rebooted         bool // since the record was written
	renamed          bool // since the VolumeAttachment of the record was asked for
	oldRecord        bool // the record on the disk is that before the last
	stones           [podCount]bool
	call             call // what flexdriver repeats when the daemon is back

	// What the CSI driver has.
	driverAway bool
	attached   bool
	staged     mnt
	stagedAs   uint8 // the volume's filesystem: that of PersistentVolume 0 or 1
	stagedWith uint8 // version of the secrets
	tried      uint8 // version of the secrets that NodeStageVolume was called with last
	published  [podCount]mnt
	guards     [podCount]bool // of the target paths
	group      [podCount]bool // the files belong to the pod's group
	other      bool           // another volume has a target at the directory of pod 1
	dirs       [podCount]bool // the kubelet's directory is there
	binds      [podCount]mnt
	readOnly   [podCount]bool // of the bind
	marker     bool
	kubelet    kubelet
	plugin     plugin
	va         attachment
}

// A fullness is what becomes of writes of the record.
type fullness uint8

const (
	room fullness = iota
	once          // the next write fails
	full          // all writes fail
)

// A call is one that the daemon died with.
type call struct{ goal, place uint8 }

// A kubelet is what the kubelet of a node believes.
type kubelet struct {
	pods     [podCount]belief
	device   belief
	attached belief // enableControllerAttachDetach: false
	forgot   bool   // restarted since, it does not know of a device mount path
}

// A plugin is the kubelet's own CSI plugin.
type plugin struct {
	file   bool           // vol_data.json next to the staging path
	age    uint8          // of that file
	knows  bool           // the kubelet knows of the stage, and will end it
	orphan bool           // it has forgotten a stage that was never ours
	staged bool           // where the staging path is another than ours
	pods   [podCount]mnt  // its mounts
	data   [podCount]bool // vol_data.json in the pod's directory
	again  [podCount]bool // the kubelet was restarted since, when the PersistentVolume was another
}

// An attachment is a VolumeAttachment of a node.
type attachment struct {
	there, ours, attached, deleting bool
	// stale: of a machine that had the node's name before.
	stale bool
	// listed: the control plane has the volume attached as a CSI one
	// (node.status.volumesAttached).
	listed bool
}

// A config is one world to explore.
type config struct {
	name        string
	nodes, pods int
	route       Route
	stage       bool // the driver stages
	direct      bool // it publishes into the kubelet's directory
	device      bool // attach: true
	callouts    bool // the kubelet calls attach and detach
	migrates    bool // the PersistentVolume may become a CSI one and back
	ownStage    bool // our staging path is not the kubelet's
	twoVolumes  bool // pod 1 has another PersistentVolume with the same handle
	shared      bool // the volume may be on both nodes
	repairs     bool // repairInUse
	clumsy      bool // the driver fails over its own dead mount
	otherVolume bool // a volume that was there before has pod 1's directory
	expand      Features
	short       budget
}

// Features are what the driver can expand.
type Features struct{ controller, node, lies bool }

// nodeOf is where a pod runs.
func (c *config) nodeOf(pod int) int { return pod % c.nodes }

func podName(pod int) string { return string(rune('a' + pod)) }

func podDir(c *config, pod int) string {
	return "/k/pods/" + podName(pod) + "/volumes/v~d/" + c.volumeName(pod)
}

func (c *config) volumeName(pod int) string {
	if pod == 1 && c.twoVolumes {
		return "b"
	}
	return "a"
}

// private is where the driver publishes for a pod; empty: to the kubelet's directory.
func (c *config) private(pod int) string {
	if c.direct {
		return ""
	}
	return "/k/pods/" + podName(pod) + "/flex2csi/volumes/kubernetes.io~csi/" + c.volumeName(pod) + "/mount"
}

// start is the first state.
func (c *config) start(b budget) world {
	w := world{left: b}
	if c.otherVolume {
		w.nodes[0].other = true
	}
	return w
}
