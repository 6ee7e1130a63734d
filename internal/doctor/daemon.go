//go:build linux

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/version"
)

// checkConfiguration checks the daemon's configuration file on the node.
func (p *probe) checkConfiguration(_ context.Context, n *notes) {
	config, err := p.config()
	invalid, faulty := errors.AsType[*strict.InvalidError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		n.skip("the configuration of the bridge, and what follows from it", "%v; --config names it (in a cluster it is often only in the daemon's pod: kubectl exec … flex2csi doctor)", err)
	case faulty:
		var faults []string
		for _, f := range invalid.Faults {
			faults = append(faults, f.String())
		}
		n.add(configurationBroken, p.Config, "%s has %d faults", p.Config, len(faults)).evidence(faults...)
	case err != nil:
		n.add(configurationBroken, p.Config, "%v", err)
	default:
		var served []string
		for i := range config.Drivers {
			served = append(served, config.Drivers[i].FlexDriver+" on "+config.Drivers[i].CSIDriver)
		}
		n.add(configurationFine, p.Config, "%s is valid", p.Config).evidence(served...)
		daemon, err := p.status()
		for _, note := range config.Notes(err == nil && daemon.Cluster != nil) {
			n.add(configurationNote, note.Path, "%s", note)
		}
	}
}

// checkDaemon checks the daemon's status.
func (p *probe) checkDaemon(_ context.Context, n *notes) {
	s, err := p.status()
	if err != nil {
		n.add(daemonSilent, p.Socket, "%v", err)
		return
	}
	if s.absent != nil {
		p.noDaemon(n, s)
	} else {
		p.meetDaemon(n, s)
	}
	for _, f := range s.BrokenFiles {
		n.add(stateBroken, strings.SplitN(f, ": ", 2)[0], "%s", f)
	}
	for _, t := range s.PendingUnmounts {
		if age := time.Since(t.Since); age > staleAfter || s.absent != nil {
			n.add(unmountPending, t.Dir, "%s of driver %s was unmounted without the daemon %v ago", t.Dir, t.FlexDriver, age.Round(time.Second))
		}
	}
	for i := range s.Volumes {
		checkVolume(n, &s.Volumes[i])
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		n.add(callFails, cmp.Or(f.PersistentVolume, f.Dir), "%s of %s fails: %s since %s, the last %v ago", f.Command, cmp.Or(f.PersistentVolume, f.Dir), count(f.Count, "time"), f.Since.UTC().Format(time.RFC3339), time.Since(f.Last).Round(time.Second)).
			evidence("request "+f.Request+", "+f.Code+": "+f.Message, "pod "+f.Pod.Describe())
	}
	for _, l := range s.Lost {
		n.add(volumeLost, l.Dir, "a pod has %s of driver %s, and the daemon has no record of it", l.PersistentVolume, l.FlexDriver)
	}
}

// noDaemon reports an absent daemon only if the node needs one.
func (p *probe) noDaemon(n *notes, s *daemonStatus) {
	_, err := p.config()
	if errors.Is(err, fs.ErrNotExist) && len(s.Volumes) == 0 && len(s.PendingUnmounts) == 0 {
		n.skip("the daemon", "%v; nothing here says that there ought to be one (no configuration at %s, no records in %s)", s.absent, p.Config, p.StateDir)
		return
	}
	n.add(daemonAbsent, p.Socket, "%v", s.absent).evidence(fmt.Sprintf("its files in %s know of %d volumes", p.StateDir, len(s.Volumes)))
}

func (p *probe) meetDaemon(n *notes, s *daemonStatus) {
	d := s.Daemon
	if d == nil {
		d = &bridgestatus.Daemon{}
	}
	n.add(daemonFine, p.Socket, "the daemon answers at %s, with %d volumes", p.Socket, len(s.Volumes)).
		evidence(fmt.Sprintf("flex2csi %s, node %s, running since %s", d.Version, d.NodeName, d.Started.UTC().Format(time.RFC3339)))
	if d.Draining {
		n.add(daemonDraining, p.Socket, "the daemon is ending")
	}
	if ours := version.Get().Version; d.Version != ours {
		n.add(daemonVersion, p.Socket, "the daemon is flex2csi %s, and this program is %s", d.Version, ours)
	}
	for _, driver := range s.Drivers {
		for _, service := range driver.Services {
			if service.LastError != "" && !service.Connected {
				n.add(driverTrouble, driver.CSIDriver, "the daemon has no connection to the %s service of %s", service.Name, driver.CSIDriver).evidence(service.LastError)
			}
		}
	}
	if c := s.Cluster; c != nil && !c.Reachable && c.LastError != "" {
		n.add(daemonNoAPI, p.Socket, "the daemon cannot reach the API server").evidence(c.LastError)
	}
	p.checkDaemonDir(n, s.pid)
}

// checkDaemonDir compares the kubelet's directory in daemon and kubelet by name, as the
// daemon does.
func (p *probe) checkDaemonDir(n *notes, pid int) {
	k, err := p.kubelet()
	if err != nil || pid == 0 {
		return
	}
	args, err := ourselves().CommandLine(pid)
	if err != nil {
		return
	}
	dir := distribution.DefaultKubeletDir
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--kubelet-dir="); ok {
			dir = value
		} else if arg == "--kubelet-dir" && i+1 < len(args) {
			dir = args[i+1]
		}
	}
	if strings.TrimSuffix(dir, "/") != k.RootDir {
		n.add(kubeletDirMismatch, k.RootDir, "the daemon (process %d) works below %s, and the kubelet (process %d) below %s", pid, dir, k.PID, k.RootDir)
	}
}

// staleAfter is how long an operation may take.
const staleAfter = 5 * time.Minute

func checkVolume(n *notes, v *bridgestatus.VolumeStatus) {
	name := cmp.Or(v.PersistentVolume, v.VolumeHandle)
	if v.UncertainSince != nil && time.Since(*v.UncertainSince) > staleAfter {
		e := n.add(volumeStuck, name, "volume %s has been %s for %v, without a final answer of %s", name, strings.ToLower(string(v.Phase)), time.Since(*v.UncertainSince).Round(time.Second), v.CSIDriver)
		if v.LastError != "" {
			e.evidence(v.LastError)
		}
	}
	if a := v.Attachment; a != nil && a.Lost {
		n.add(attachmentLost, a.Object, "VolumeAttachment %s of volume %s is gone, or not attached any more, while pods have the volume", a.Object, name)
	}
	if v.Staging != nil && v.Staging.Corrupted != "" {
		n.add(mountCorrupted, v.Staging.Path, "the staging mount of %s does not work any more", name).evidence("as the daemon says: " + v.Staging.Corrupted)
	}
	for i := range v.Targets {
		if t := &v.Targets[i]; t.Corrupted != "" {
			n.add(mountCorrupted, t.Dir, "the mount of volume %[2]s for pod %[1]s does not work any more", t.Pod.Describe(), name).evidence("as the daemon says: " + t.Corrupted)
		}
	}
}

// listens reports whether a process listens.
func listens(ctx context.Context, socket string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// listener returns the process that listens at a socket; zero if there is none, or if
// we do not see its PID namespace.
func listener(ctx context.Context, socket string) (pid int) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0
	}
	defer conn.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

func ourselves() kubelet.Host { return kubelet.Host{} }
