package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// attackRSS is what the daemon may take under any attack. The manifests give it
// 512 MiB.
const attackRSS = 300 << 10 // KiB

// TestAttack has callers and a CSI driver do the worst to a daemon, while volumes
// of another driver are mounted.
func TestAttack(t *testing.T) {
	testenv.Need(t, "root", "mount")
	for name, attack := range map[string]func(*victim, context.Context){
		"connections that say nothing": func(v *victim, ctx context.Context) { v.connect(ctx, 10000, 0) },
		"endless lines":                func(v *victim, ctx context.Context) { v.connect(ctx, 2000, wire.MaxLine-1) },
		"a driver of garbage":          func(v *victim, ctx context.Context) { v.drive(ctx, garbageDriver) },
		"a driver that says nothing":   func(v *victim, ctx context.Context) { v.drive(ctx, silentDriver) },
		"messages of 64 MiB":           func(v *victim, ctx context.Context) { v.drive(ctx, answers(largeMessage)) },
		"endless messages":             func(v *victim, ctx context.Context) { v.drive(ctx, answers(endlessMessages)) },
		"headers of 64 MiB":            func(v *victim, ctx context.Context) { v.drive(ctx, answers(largeHeaders)) },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictim(t)
			before, calm := v.figures(), v.measure()
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); attack(v, ctx) }()
			time.Sleep(2 * time.Second)
			during, busy := v.figures(), v.measure()
			end()
			<-ended
			time.Sleep(time.Second)
			after := v.figures()
			t.Logf("KiB before %d, peak %d, after %d; descriptors %d, %d, %d; mount and unmount of another driver %v, then %v", before.rss, after.peak, after.rss, before.fds, during.fds, after.fds, calm, busy)
			if after.peak > attackRSS || during.fds > 1500 || after.fds > before.fds+10 || busy > 5*time.Second {
				t.Error("that is too much")
			}
		})
	}
}

// A victim is a daemon with two drivers: one is well, and the attacker has the socket of
// the other.
type victim struct {
	*testing.T
	bridge *daemon.Daemon
	dir    string
	pid    int
	n      int
}

const wellDriver, hostileDriver = "faults.example.com/well", "faults.example.com/hostile"

func newVictim(t *testing.T) *victim {
	t.Helper()
	v := &victim{T: t, dir: t.TempDir()}
	v.bridge = &daemon.Daemon{Dir: v.dir, KubeletDir: v.path("kubelet"), NodeName: nodeName, Drivers: []daemon.Driver{
		{FlexDriver: wellDriver, CSIDriver: "well.csi.example.com", Endpoint: v.path("well.sock")},
		{FlexDriver: hostileDriver, CSIDriver: "hostile.csi.example.com", Endpoint: v.path("hostile.sock")},
	}}
	if err := v.bridge.Configure(); err != nil {
		t.Fatal(err)
	}
	driver := exec.Command(os.Args[0], "--name", "well.csi.example.com", "--node-id", nodeName, "--dir", v.path("disks"), "--endpoint", "unix://"+v.path("well.sock"), "--directories", "--volume", "vol="+imageSize)
	driver.Env = append(os.Environ(), envRole+"="+roleDriver)
	served := exec.Command(os.Getenv(envDaemon), v.bridge.Args()...)
	for _, cmd := range []*exec.Cmd{driver, served} {
		p, err := daemon.Start(cmd, v.path(filepath.Base(cmd.Path)+".log"), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.End(unix.SIGKILL) })
	}
	v.pid = served.Process.Pid
	if err := eventually(func() error { return v.life() }); err != nil {
		t.Fatalf("%v\n%s", err, tail(v.path("flex2csi.log"), 20))
	}
	return v
}

func (v *victim) path(name string) string { return filepath.Join(v.dir, name) }

type figures struct{ rss, peak, fds int }

func (v *victim) figures() (f figures) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	fds, err2 := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.pid))
	if err != nil || err2 != nil {
		v.Errorf("the daemon has ended: %v, %v\n%s", err, err2, tail(v.path("flex2csi.log"), 20))
	}
	for line := range strings.Lines(string(status)) {
		if words := strings.Fields(line); words[0] == "VmRSS:" {
			f.rss, _ = strconv.Atoi(words[1])
		} else if words[0] == "VmHWM:" {
			f.peak, _ = strconv.Atoi(words[1])
		}
	}
	f.fds = len(fds)
	return f
}

func (v *victim) call(ctx context.Context, driver string, argv ...string) error {
	r, err := wire.Call(ctx, v.bridge.Socket(), wire.NewRequest(driver, argv, 20*time.Second))
	if err == nil && r.Status.Status != flex.StatusSuccess {
		err = fmt.Errorf("%s", r.Status.Message)
	}
	return err
}

func (v *victim) mount(ctx context.Context, driver, pod string) error {
	dir := v.path("kubelet/pods/" + pod + "/volumes/" + escaped(driver) + "/pv")
	options, err := json.Marshal(map[string]string{"volumeHandle": "vol", "kubernetes.io/pvOrVolumeName": "pv", "kubernetes.io/pod.uid": pod, "kubernetes.io/pod.name": pod, "kubernetes.io/pod.namespace": "ns", "kubernetes.io/fsType": "", "kubernetes.io/readwrite": "rw"})
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err == nil {
		err = v.call(ctx, driver, "mount", dir, string(options))
	}
	return err
}

// life is a mount and an unmount of the driver that is well.
func (v *victim) life() error {
	v.n++
	pod := fmt.Sprint("pod-", v.n)
	if err := v.mount(v.Context(), wellDriver, pod); err != nil {
		return err
	}
	return v.call(v.Context(), wellDriver, "unmount", v.path("kubelet/pods/"+pod+"/volumes/"+escaped(wellDriver)+"/pv"))
}

// measure returns the longest of some lives.
func (v *victim) measure() time.Duration {
	var took []time.Duration
	for range 10 {
		start := time.Now()
		if err := v.life(); err != nil {
			v.Error(err)
		}
		took = append(took, time.Since(start))
	}
	return slices.Max(took).Round(time.Millisecond)
}

// connect makes so many connections, each with so many bytes and no end of line,
// and makes those again that the daemon ends.
func (v *victim) connect(ctx context.Context, count, bytes int) {
	line := []byte(strings.Repeat("x", bytes))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			var open []net.Conn
			for n := 0; n < count/50 && ctx.Err() == nil; n++ {
				conn, err := net.Dial("unix", v.bridge.Socket())
				if err != nil { // the backlog is full
					time.Sleep(time.Millisecond)
					continue
				}
				_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = conn.Write(line)
				open = append(open, conn)
			}
			<-ctx.Done()
			for _, conn := range open {
				conn.Close()
			}
		})
	}
	all.Wait()
}

// drive has the hostile driver serve, and makes more calls of it than it may have.
func (v *victim) drive(ctx context.Context, serve func(net.Listener)) {
	l, err := net.Listen("unix", v.path("hostile.sock"))
	if err != nil {
		v.Error(err)
		return
	}
	go serve(l)
	defer l.Close()
	var all sync.WaitGroup
	for n := range 600 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := v.mount(ctx, hostileDriver, fmt.Sprint("hostile-", n)); err == nil && ctx.Err() == nil {
					v.Error("the hostile driver is believed")
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	<-ctx.Done()
	all.Wait()
}

func garbageDriver(l net.Listener) {
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		go func() {
			defer conn.Close()
			for _, err := conn.Write(make([]byte, 1<<16)); err == nil; {
				_, err = conn.Write([]byte(strings.Repeat("\xff\x00garbage", 1<<13)))
			}
		}()
	}
}

func silentDriver(l net.Listener) {
	for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
		defer conn.Close()
	}
}

// answers serves gRPC, and every RPC in this way.
func answers(answer grpc.StreamHandler) func(net.Listener) {
	return func(l net.Listener) {
		s := grpc.NewServer(grpc.UnknownServiceHandler(answer), grpc.MaxSendMsgSize(1<<30))
		_ = s.Serve(l)
		s.Stop()
	}
}

func largeMessage(_ any, s grpc.ServerStream) error {
	return s.SendMsg(wrapperspb.String(strings.Repeat("x", 64<<20)))
}

func endlessMessages(_ any, s grpc.ServerStream) error {
	for {
		if err := s.SendMsg(wrapperspb.String("")); err != nil {
			return err
		}
	}
}

func largeHeaders(_ any, s grpc.ServerStream) error {
	text := strings.Repeat("x", 1<<20)
	return s.SendHeader(metadata.Pairs(slices.Repeat([]string{"key", text}, 64)...))
}
