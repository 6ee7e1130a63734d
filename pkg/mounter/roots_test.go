package mounter_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// The owner of a directory above a root could replace the root by a link
// (security.md, F5).
func TestRootsThatOthersCanReplace(t *testing.T) {
	testenv.Need(t, "mount", "root")
	var m mounter.Mounter
	parent := newDir(t)
	root := filepath.Join(parent, "root")
	image := filepath.Join(root, "ns/disk.img")
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, image, "x")
	link := filepath.Join(newDir(t), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	try := func(root string) []error {
		opened, errImage := m.OpenImage(t.Context(), filepath.Join(root, "ns/disk.img"), 0, mounter.Roots{Below: []string{root}})
		if errImage == nil {
			opened.Close()
		}
		target := newTarget(t)
		errBind := m.Bind(t.Context(), filepath.Join(root, "ns"), mounter.Roots{Below: []string{root}}, target, nil, nil)
		if errBind == nil {
			mustUnmount(t, target)
		}
		return []error{errImage, errBind, m.MakeRootOnlyDir(root, "other")}
	}
	for _, root := range []string{root, link} {
		if err := errors.Join(try(root)...); err != nil {
			t.Error(err)
		}
	}
	for text, change := range map[string]func() error{
		"user with ID 12345": func() error { return errors.Join(os.Chown(parent, 12345, -1), os.Chmod(parent, 0o755)) },
		"mode 0777":          func() error { return errors.Join(os.Chown(parent, 0, -1), os.Chmod(parent, 0o777)) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		for _, root := range []string{root, link} {
			for _, err := range try(root) {
				requireError(t, err, mounter.ErrUnsafePath, text, parent)
			}
		}
	}
}

// A directory root that is a link to the directory above an image root showed the images
// of all namespaces: the roots were compared as texts (security.md, F5).
func TestRootsAreApartWhateverLeadsToThem(t *testing.T) {
	testenv.Need(t, "mount")
	dir := newDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"srv/images/ns", "srv/shared", "bound", "holder/below", "other"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": "srv", "inside": "srv/images/ns", "sibling": "srv/shared"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, source := range map[string]string{"bound": "srv", "holder/below": "srv/images"} {
		if err := unix.Mount(at(source), at(name), "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(at(name), unix.MNT_DETACH) }()
	}
	images := at("srv/images")
	for other, apart := range map[string]bool{
		"link": false, "inside": false, "srv": false, "bound": false, "bound/images": false, "bound/images/ns": false, "holder/below": false,
		"holder":  true, // a bind mount of it does not show what is mounted below it
		"sibling": true, "srv/shared": true, "bound/shared": true, "other": true, "missing": true,
	} {
		requireApart(t, images, images, at(other), apart)
		if other != "missing" {
			requireApart(t, at(other), at(other), images, apart)
		}
	}
	requireApart(t, at("holder/below"), at("holder"), images, false)
	requireApart(t, at("holder/below/ns"), at("holder"), images, false)
	requireApart(t, images, at("srv"), at("holder"), true)
	requireApart(t, at("holder/below"), at("holder"), at("srv/shared"), true)
}

// requireApart opens a directory below a root, and an image in it, where another root must
// be apart.
func requireApart(t *testing.T, dir, root, other string, apart bool) {
	t.Helper()
	var m mounter.Mounter
	roots := mounter.Roots{Below: []string{root}, Apart: []string{other, root, root + "/missing"}}
	image := filepath.Join(dir, "disk.img")
	open := func(size int64) error {
		opened, err := m.OpenImage(t.Context(), image, size, roots)
		if err == nil {
			opened.Close()
		}
		return err
	}
	errs := []error{m.FindDirectory(t.Context(), dir, roots), open(testenv.MiB)}
	if _, err := os.Lstat(image); errors.Is(err, fs.ErrNotExist) == apart {
		t.Errorf("an image in %s: %v", dir, err)
	}
	mustWrite(t, image, "x")
	defer os.Remove(image)
	for _, err := range append(errs, open(0)) {
		if !apart {
			requireError(t, err, mounter.ErrUnsafePath, root, other)
		} else if err != nil {
			t.Errorf("%s below %s and %s: %v", dir, root, other, err)
		}
	}
}

// A root behind an automount that nothing had used yet was the empty directory below it.
// The daemon here is gone, so that what fires the automount is told ENOENT.
func TestRootsFireAutomounts(t *testing.T) {
	testenv.Need(t, "mount", "root")
	dir := newDir(t)
	daemon := exec.Command("cat") // the automount of its process group does not fire for it
	daemon.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	stdin, err := daemon.StdinPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = daemon.Wait() }()
	fireNothing(t, dir, "direct", daemon.Process.Pid)
	var m mounter.Mounter
	if err := m.FindDirectory(t.Context(), dir, mounter.Roots{Below: []string{dir}}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the automount did not fire: %v", err)
	}
}

// One root that is refused, or with a server that is dead or silent, kept the volumes of
// all others from being mounted.
func TestSickRootsStopNoOthers(t *testing.T) {
	testenv.Need(t, "mount", "root", "fuse")
	dir := newDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"images", "holder/dead", "silent", "open/root"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(at("open"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"holder/dead", "silent"} {
		server := mountFUSE(t, at(name), "fuse", "test")
		defer func() { _ = unix.Unmount(at(name), unix.MNT_DETACH) }()
		if name == "silent" {
			server.fallSilent(t)
		} else {
			server.dev.Close()
			<-server.done
		}
	}
	for _, other := range []string{"holder/dead", "silent", "open/root"} {
		requireApart(t, at("images"), at("images"), at(other), true)
	}
	for root, below := range map[string]string{"holder": "holder/dead", ".": "open/root"} {
		requireApart(t, at(root), at(root), at(below), false)
	}
}

// A root showed what an automount below it mounts: with a map such as -hosts any server that
// the path names, which the administrator has not opened.
func TestAutomountsBelowRoots(t *testing.T) {
	testenv.Need(t, "mount", "root")
	dir := newDir(t)
	for _, kind := range []string{"direct", "indirect"} {
		for _, name := range []string{"/auto", "/plain"} {
			mustMkdir(t, dir+"/"+kind+name)
		}
	}
	mounted := dir + "/indirect/auto/host"
	// The automounts of its process group do not fire for it.
	daemon := exec.Command("sh", "-c", `read _; mkdir "$3"; for d; do mount -n -t tmpfs -o mode=755 test "$d"; mkdir "$d/dir"; echo x >"$d/disk"; done; echo; read _`,
		"sh", dir+"/direct/auto", dir+"/direct/plain", mounted)
	daemon.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	stdin, err := daemon.StdinPipe()
	stdout, err2 := daemon.StdoutPipe()
	if err := errors.Join(err, err2, daemon.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = daemon.Wait() }()
	for _, kind := range []string{"direct", "indirect"} {
		fireNothing(t, dir+"/"+kind+"/auto", kind, daemon.Process.Pid)
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{dir + "/direct/auto", dir + "/direct/plain", mounted} {
		defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	}
	var m mounter.Mounter
	for _, tt := range []struct {
		root, path string
		refused    bool
	}{
		{"/direct", "/direct/auto", true},
		{"/direct", "/direct/auto/dir", true},
		{"/direct", "/direct/plain/dir", false},
		{"/direct/auto", "/direct/auto/dir", false}, // that the administrator has opened
		{"/indirect", "/indirect/auto/host/dir", true},
		{"/indirect", "/indirect/auto", true},
		{"/indirect/auto", "/indirect/auto", true},
		{"/indirect/auto", "/indirect/auto/host/dir", true},
		{"/indirect/auto/host", "/indirect/auto/host/dir", false},
	} {
		roots := mounter.Roots{Below: []string{dir + tt.root}}
		err := m.FindDirectory(t.Context(), dir+tt.path, roots)
		image, imageErr := m.OpenImage(t.Context(), filepath.Dir(dir+tt.path)+"/disk", 0, roots)
		if imageErr == nil {
			image.Close()
		}
		if errors.Is(err, mounter.ErrUnsafePath) != tt.refused || !tt.refused && errors.Join(err, imageErr) != nil {
			t.Errorf("%s below root %s: %v; an image: %v", tt.path, tt.root, err, imageErr)
		}
		if filepath.Base(tt.path) == "dir" && errors.Is(imageErr, mounter.ErrUnsafePath) != tt.refused {
			t.Errorf("image next to %s below root %s: %v", tt.path, tt.root, imageErr)
		}
	}
}

// fireNothing mounts autofs with a daemon that is gone.
func fireNothing(t *testing.T, at, kind string, group int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	err = unix.Mount("test", at, "autofs", 0, fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,%s", w.Fd(), group, kind))
	r.Close()
	if errors.Is(err, unix.ENODEV) {
		t.Skip("the kernel has no autofs")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}
