package volumelog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func redact(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }

func about() []any { return []any{"volumeHandle", "h1", "request", "9f86"} }

// say logs the secret in every way that there is.
func say(log *slog.Logger) {
	secret := "hunter2"
	log.Debug("debug hunter2")
	log.Info("message "+secret, "string", secret)
	log.Warn("values", "error", fmt.Errorf("wrapped: %w", errors.New(secret)), "list", []string{"a", secret},
		"map", map[string]string{"k": secret}, "bytes", struct{ S string }{secret}, "number", 7, "took", time.Second)
	log.With("with", secret).WithGroup("group").Error("grouped", "string", secret)
	klog.Infof("klog %s", secret)
	klog.ErrorS(errors.New(secret), "structured", "key", secret)
	klog.Warningf("klog %v", []string{secret})
}

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for range 2 { // the second call appends
		log, done, _ := OpenCallLog("flexdriver", file, slog.LevelInfo, redact, about()...)
		say(log)
		done()
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", st.Mode(), err)
	}
	if strings.Contains(string(content), "hunter2") {
		t.Errorf("the secret is in the log:\n%s", content)
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	if len(lines) != 12 {
		t.Errorf("%d lines, want 6 for each call (none at debug level):\n%s", len(lines), content)
	}
	for _, line := range lines {
		var entry struct {
			Level, Msg string
			PID        int
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Msg == "" || entry.Level == "" || entry.PID != os.Getpid() {
			t.Errorf("%v: %s", err, line)
		}
	}
	for _, part := range []string{`"number":7`, `"error":"wrapped: [redacted]"`, `"level":"WARN"`, `"with":"[redacted]"`} {
		if !strings.Contains(string(content), part) {
			t.Errorf("%s is not in the log:\n%s", part, content)
		}
	}
}

func TestNew(t *testing.T) {
	var b bytes.Buffer
	log := NewCallLog(&b, slog.LevelDebug, redact, about()...)
	say(log)
	if strings.Contains(b.String(), "hunter2") || !strings.Contains(b.String(), "debug [redacted]") {
		t.Errorf("%s", b.String())
	}
	// Errors of the writer are ignored.
	say(NewCallLog(brokenWriter{}, slog.LevelDebug, redact, about()...))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Nothing about a log may stop or delay a call, nor may it write elsewhere.
func TestOpenCannot(t *testing.T) {
	dir := t.TempDir()
	fifo, full := filepath.Join(dir, "fifo"), filepath.Join(dir, "full")
	for _, path := range []string{fifo, full} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	// A reader that does not read, and a pipe that is full.
	reader, err := os.OpenFile(full, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	stuffing, err := unix.Open(full, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = unix.Write(stuffing, make([]byte, 4096))
	}
	defer unix.Close(stuffing)

	for name, path := range map[string]string{
		"directory": dir, "missing directory": filepath.Join(dir, "none/log"), "link": filepath.Join(dir, "link"),
		"pipe without a reader": fifo, "pipe that is full": full, "empty name": "", "device that is full": "/dev/full",
	} {
		t.Run(name, func(t *testing.T) {
			finished := make(chan struct{})
			go func() {
				defer close(finished)
				log, done, _ := OpenCallLog("flexdriver", path, slog.LevelDebug, redact, about()...)
				say(log)
				done()
			}()
			select {
			case <-finished:
			case <-time.After(10 * time.Second):
				t.Fatal("the log stops the call")
			}
		})
	}
	if st, err := os.Stat(elsewhere); err != nil || st.Size() != 0 {
		t.Errorf("a link was followed: %d bytes, %v", st.Size(), err)
	}
}

func TestJournal(t *testing.T) {
	testenv.Need(t, "mount")
	if err := os.MkdirAll("/run", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount("/run", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	// Without a journal: silence.
	log, done, _ := OpenCallLog("flexdriver", Journal, slog.LevelInfo, redact, about()...)
	say(log)
	done()

	if err := os.MkdirAll(filepath.Dir(journalSocket), 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: journalSocket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	log, done, _ = OpenCallLog("flexdriver", Journal, slog.LevelInfo, redact, about()...)
	defer done()
	log.Error("two\nlines", "secret", "hunter2")
	buf := make([]byte, 1<<16)
	n, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	entry := string(buf[:n])
	for _, field := range []string{"MESSAGE=", "SYSLOG_IDENTIFIER=flexdriver\n", fmt.Sprintf("SYSLOG_PID=%d\n", os.Getpid()), "PRIORITY="} {
		if !strings.Contains("\n"+entry, "\n"+field) {
			t.Errorf("%q is not in the entry:\n%s", field, entry)
		}
	}
	if strings.Contains(entry, "hunter2") || strings.Count(entry, "\n") != 4 {
		t.Errorf("the entry is:\n%s", entry)
	}
	// A journal that does not read is not waited for.
	for range 5000 {
		log.Info(strings.Repeat("x", 1000))
	}
}
