package csidriver_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/csidriver/serve"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// TestKill kills the driver again and again while volumes live in parallel. The caller
// repeats each call until it has a final answer.
func TestKill(t *testing.T) {
	testenv.Need(t, "ext4")
	const volumes, rounds = 3, 6
	w := newWorld(t, "--attach")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var lives sync.WaitGroup
	for n := range volumes {
		lives.Go(func() {
			for range rounds {
				w.live("disk-" + pod(n))
			}
		})
	}
	finished := make(chan struct{})
	go func() { lives.Wait(); close(finished) }()
	random := rand.New(rand.NewPCG(seed, 0))
	kills := 0
	for alive := true; alive; {
		// On a slow machine, which has had many by then, half as often ever again: no call
		// would come to its end.
		pause := time.Duration(5+random.IntN(150)) * time.Millisecond << (kills / 40)
		select {
		case <-finished:
			alive = false
		case <-time.After(pause):
			kills++
			w.restart("--attach")
		}
	}
	t.Logf("%d life cycles, %d kills", volumes*rounds, kills)
	w.wantIdle()
	wantNothingLeft(t, w)
	if left, err := csidriver.Inspect(w.disks()); err != nil || len(left) > 0 {
		t.Errorf("volumes left: %v, %v", left, err)
	}
	if images, err := filepath.Glob(w.disks() + "/volumes/*"); err != nil || len(images) > 0 {
		t.Errorf("files left: %v, %v", images, err)
	}
}

// live is the life of a volume with a caller that never gives up.
func (w *world) live(id string) {
	again := func(f func() error) {
		for deadline := time.Now().Add(time.Minute); ; {
			err := f()
			switch status.Code(err) {
			case codes.OK:
				return
			case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
				if time.Now().Before(deadline) {
					time.Sleep(5 * time.Millisecond)
					continue
				}
			}
			w.t.Errorf("volume %s: %v", id, err)
			return
		}
	}
	var published map[string]string
	again(func() error {
		_, err := w.CreateVolume(ctx(w.t), &csi.CreateVolumeRequest{Name: id, CapacityRange: &csi.CapacityRange{RequiredBytes: mib(32)}, VolumeCapabilities: []*csi.VolumeCapability{multi("")}})
		return err
	})
	again(func() (err error) { published, err = w.attach(id, "node-1"); return err })
	again(func() error {
		_, err := w.NodeStageVolume(ctx(w.t), &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id), VolumeCapability: multi(""), PublishContext: published})
		return err
	})
	again(func() error {
		_, err := w.NodePublishVolume(ctx(w.t), &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id), TargetPath: w.target(id), VolumeCapability: multi(""), PublishContext: published})
		return err
	})
	if err := w.write(id, id); err != nil {
		w.t.Error(err)
	}
	again(func() error { return w.unpublish(id, id) })
	again(func() error { return w.unstage(id) })
	again(func() error { return w.detach(id, "node-1") })
	again(func() error { return w.delete(id) })
}

// TestBusy: while a call is at work on a volume others are not kept waiting.
func TestBusy(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.create("disk-1", mib(64), nil)
	w.create("disk-2", mib(64), nil)
	if err := fault.WriteFile(w.faults(), fault.Rule{Method: "NodeStageVolume", Volume: "disk-1", Hang: true, Stubborn: true, Times: 1}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.NodeStageVolume(short, &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), VolumeCapability: multi("")})
	w.want(err, codes.DeadlineExceeded)
	w.want(w.stage("disk-1", multi("")), codes.Aborted)
	w.want(w.stage("disk-2", multi("")), codes.OK)
	if err := fault.WriteFile(w.faults()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = w.stage("disk-1", multi("")); status.Code(err) != codes.Aborted || time.Now().After(deadline) {
			break
		}
	}
	w.want(err, codes.OK) // the first call did it, late
	w.want(w.unstage("disk-1"), codes.OK)
	w.want(w.unstage("disk-2"), codes.OK)
	wantNothingLeft(t, w)
}

// TestFaults has the driver do its work and say that it did not, and die.
func TestFaults(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.create("disk-1", mib(64), nil)
	if err := fault.WriteFile(w.faults(),
		fault.Rule{Method: "NodeStageVolume", After: true, Code: codes.Internal, Times: 1},
		fault.Rule{Method: "NodePublishVolume", After: true, Kill: true, Times: 1},
		fault.Rule{Method: "NodeUnpublishVolume", Code: codes.Unavailable, Times: 2},
	); err != nil {
		t.Fatal(err)
	}
	w.want(w.stage("disk-1", multi("")), codes.Internal)
	w.want(w.publish("a", multi(""), false), codes.Unavailable)
	w.restart()
	w.want(w.publish("a", multi(""), false), codes.OK)
	w.want(w.unpublish("disk-1", "a"), codes.Unavailable)
	w.want(w.unpublish("disk-1", "a"), codes.Unavailable)
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	w.wantIdle()
	wantNothingLeft(t, w)
}

func TestHealth(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.create("disk-1", mib(64), nil)
	w.want(w.stage("disk-1", multi("")), codes.OK)
	health := func() string {
		h, err := w.NodeGetVolumeHealth(ctx(t), &csi.NodeGetVolumeHealthRequest{VolumeId: "disk-1"})
		w.want(err, codes.OK)
		reasons := ""
		for _, s := range h.GetVolumeHealth().GetHealthStatuses() {
			reasons += s.GetReason() + " "
		}
		return reasons
	}
	if got := health(); got != "" {
		t.Errorf("a volume that is well has %s", got)
	}
	if out, err := exec.Command("umount", w.staging("disk-1")).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if got := health(); got != "NotMounted " {
		t.Errorf("a volume that another process unmounted has %s", got)
	}
	w.want(w.unstage("disk-1"), codes.OK)
	if err := os.Truncate(filepath.Join(w.disks(), "volumes/disk-1.img"), 0); err != nil {
		t.Fatal(err)
	}
	list, err := w.ControllerListVolumeHealth(ctx(t), &csi.ControllerListVolumeHealthRequest{})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetHealthStatuses()[0].GetStatus() != csi.VolumeHealthErrorType_DATA_LOSS {
		t.Errorf("list %v, %v", list, err)
	}
}

func TestRegistration(t *testing.T) {
	kubelet := shortDir(t)
	w := newWorld(t, "--register", kubelet)
	_, err := w.GetPluginInfo(ctx(t), &csi.GetPluginInfoRequest{})
	w.want(err, codes.OK)
	conn, err := grpc.NewClient("unix://"+serve.RegistrationSocket(kubelet, "loop.csi.example.com"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx(t), &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetName() != "loop.csi.example.com" || info.GetEndpoint() != w.socket() {
		t.Errorf("info %v, %v", info, err)
	}
	if _, err := client.NotifyRegistrationStatus(ctx(t), &registration.RegistrationStatus{PluginRegistered: false, Error: "not wanted"}); err != nil {
		t.Error(err)
	}
	if err := w.cmd.Wait(); err == nil {
		t.Error("the driver ended well although it could not register")
	}
}

// TestSockets: a socket that was left behind is replaced, one that is in use
// is not.
func TestSockets(t *testing.T) {
	w := newWorld(t)
	_, err := w.GetPluginInfo(ctx(t), &csi.GetPluginInfoRequest{})
	w.want(err, codes.OK)
	cmd := exec.Command(os.Args[0], "--dir", w.disks(), "--endpoint", w.socket(), "--node-id", "node-2")
	cmd.Env = append(os.Environ(), envMain+"=1")
	if out, err := cmd.CombinedOutput(); err == nil || !contains(string(out), "another driver listens there") {
		t.Errorf("a second driver at the same socket: %v, %s", err, out)
	}
	w.restart()
}

// TestSides: a call of the controller's side does not fail one of the node's.
func TestSides(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t, "--attach")
	w.create("disk-1", mib(64), nil)
	published, err := w.attach("disk-1", "node-1")
	w.want(err, codes.OK)
	if err := fault.WriteFile(w.faults(), fault.Rule{Method: "ControllerPublishVolume", Delay: fault.Duration(300 * time.Millisecond), Times: 1}); err != nil {
		t.Fatal(err)
	}
	again := make(chan error, 1)
	go func() {
		_, err := w.attach("disk-1", "node-1")
		again <- err
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		_, err := os.Stat(w.faults() + ".used")
		begun = err == nil
	}
	_, err = w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), VolumeCapability: multi(""), PublishContext: published})
	w.want(err, codes.OK)
	w.want(<-again, codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	w.want(w.detach("disk-1", "node-1"), codes.OK)
	wantNothingLeft(t, w)
}
