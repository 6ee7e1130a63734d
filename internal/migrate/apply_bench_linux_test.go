package migrate_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// BenchmarkApply migrates volumes of a cluster with 10,000 of them on 500 nodes, by the program
// itself, and says how much memory that has had at most (MiB), and what it has asked the API
// server for: all of it for each volume, and what one more volume adds to a run with fewer. Only
// with more than ten all pods are listed once.
func BenchmarkApply(b *testing.B) {
	program, err := testenv.Program(b.TempDir(), "FLEX2CSI_BINARY", "../../cmd/flex2csi")
	if err != nil {
		b.Fatal(err)
	}
	var base measured
	fewer := 0
	for _, n := range []int{10, 20, 120, 1_000} {
		b.Run(fmt.Sprintf("volumes=%d", n), func(b *testing.B) {
			var m measured
			for b.Loop() {
				m = applyShops(b, program, n)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(m.memory>>10), "MiB")
			b.ReportMetric(m.took.Seconds(), "s")
			b.ReportMetric(float64(m.sent>>10)/float64(n), "KiB/volume")
			b.ReportMetric(float64(m.requests)/float64(n), "requests/volume")
			if fewer > 10 {
				b.ReportMetric(float64((m.sent-base.sent)>>10)/float64(n-fewer), "KiB/more")
				b.ReportMetric(float64(m.requests-base.requests)/float64(n-fewer), "requests/more")
			}
			base, fewer = m, n
		})
	}
}

// measured is what a run has cost.
type measured struct {
	memory, requests, sent int // KiB, …, bytes
	took                   time.Duration
}

// applyShops has a program migrate the first volumes.
func applyShops(b *testing.B, program string, n int) measured {
	b.Helper()
	c := newShopCluster(b, 10_000, 500)
	stop := make(chan struct{})
	defer close(stop)
	go c.bustle(stop, 200*time.Millisecond)
	dir := b.TempDir()
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		b.Fatal(err)
	}
	args := []string{"migrate", "apply", "--kubeconfig", serveShops(b, c), "--journal", filepath.Join(dir, "journal"), "--config", config, "--yes", "--width", "10", "--timeout", "2m", "-o", "name"}
	for i := range n {
		args = append(args, fmt.Sprintf("pv-%d", i))
	}
	began := time.Now()
	var out bytes.Buffer
	p := exec.CommandContext(b.Context(), program, args...)
	p.Stdout, p.Stderr = &out, &out
	p.Env = append(os.Environ(), "GOMEMLIMIT=400MiB") // as in the Job
	if err := p.Start(); err != nil {
		b.Fatal(err)
	}
	most := make(chan int)
	go func() { most <- memoryOf(p.Process.Pid) }()
	err := p.Wait()
	m := measured{took: time.Since(began), memory: <-most}
	if err != nil {
		b.Fatalf("%v\n%s", err, out.Bytes()[max(0, out.Len()-4000):])
	}
	m.requests, m.sent = c.total()
	b.Logf("%+v\n%s", m, c.report())
	return m
}

// memoryOf returns how much memory a process has had at most until it ended, in KiB. What wait
// returns (ru_maxrss) has the memory of its parent in it, which is the API server here.
func memoryOf(pid int) (most int) {
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, after, found := strings.Cut(string(status), "VmHWM:")
		if err != nil || !found {
			return most
		}
		_, _ = fmt.Sscan(after, &most)
		time.Sleep(20 * time.Millisecond)
	}
}
