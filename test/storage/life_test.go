package storage_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// life is what every volume lives that pods share: written by one, read by another and by one that
// may only read, mounted again as after a restart of the kubelet, gone, and there again.
func life(t *testing.T, v *volume) {
	t.Helper()
	a, b, reader := v.pod("a").mount(), v.pod("b"), v.pod("reader")
	if err := a.write("file", "data"); err != nil {
		t.Fatal(err)
	}
	a.mount()
	b.mount().wantRead("file", "data")
	reader.readOnly = true
	if v.oneMode {
		wantFailure(t, reader.tryMount())
	} else {
		reader.mount().wantRead("file", "data")
		if err := reader.write("other", ""); !errors.Is(err, unix.EROFS) {
			t.Errorf("a pod that may only read writes: %v", err)
		}
	}
	for _, p := range []*pod{a, b, reader, a} { // once too often
		p.unmount()
	}
	v.n.wantNothing()
	c := v.pod("c").mount()
	c.wantRead("file", "data")
	c.unmount()
	v.n.wantNothing()
}

// grouped mounts a volume for a pod with an fsGroup, and looks whether its files have it.
func grouped(t *testing.T, v *volume) {
	t.Helper()
	group := int64(4321)
	p := v.pod("grouped")
	p.fsGroup = &group
	p.mount()
	if err := p.write("of-group", "data"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".", "of-group"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(p.dir(), name), &st); err != nil || int64(st.Gid) != group {
			t.Errorf("%s has the group %d, %v; want %d", name, st.Gid, err, group)
		}
	}
	p.unmount()
	v.n.wantNothing()
}

// crashes ends the daemon and the CSI driver while a pod has the volume: the pod notices nothing,
// and the volume goes as if nothing had happened.
func crashes(t *testing.T, v *volume) {
	t.Helper()
	p := v.pod("a").mount()
	f, err := os.Create(filepath.Join(p.dir(), "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, end := range []func(){
		func() { v.n.kill(v.n.served); v.n.startBridge() },
		func() { v.n.kill(v.n.csi.process); v.n.startCSI() },
	} {
		end()
		if _, err := f.WriteString("line\n"); err != nil {
			t.Error(err)
		}
		if err := f.Sync(); err != nil {
			t.Error(err)
		}
		p.mount()
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	p.wantRead("open", "line\nline\n")
	p.unmount()
	v.n.wantNothing()
}

// wantFailure fails the test unless a call has failed, with all of these texts in its message.
func wantFailure(t *testing.T, status flex.DriverStatus, texts ...string) {
	t.Helper()
	if status.Status != flex.StatusFailure {
		t.Errorf("answered %s: %s; want a Failure with %q", status.Status, status.Message, texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(status.Message, text) {
			t.Errorf("answered %q; want %q in it", status.Message, text)
		}
	}
}
