package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/version"
)

// runOptions are the flags of the commands that change something.
type runOptions struct {
	plannerOptions
	waveOptions
	journal string
	timeout time.Duration
	format  outputFormat
}

func newRunOptions() runOptions {
	return runOptions{format: outputFormat{formats: []string{table, wide, asJSON, asYAML, asName}}}
}

func (o *runOptions) add(c *cobra.Command) {
	set := c.Flags()
	o.waveOptions.add(c)
	set.DurationVar(&o.timeout, "timeout", 5*time.Minute, "timeout of each wait")
	set.StringVar(&o.journal, "journal", defaultJournal, "`directory` of the copies of the journal and of the objects; the journal is in the cluster")
	o.format.add(c)
	o.plannerOptions.add(c)
}

func (o *runOptions) check() error {
	switch {
	case o.timeout < time.Second || o.timeout > 24*time.Hour:
		return usagef("--timeout %v: want 1s to 24h", o.timeout)
	case o.journal == "":
		return usagef("--journal: want a directory")
	}
	return o.waveOptions.check()
}

// checkConfirmed checks the flags of a command that asks for a confirmation. Without yes
// that needs a terminal.
func (o *runOptions) checkConfirmed(env environment, yes bool) error {
	if err := o.check(); err != nil {
		return err
	}
	if !yes && !isTerminal(env.in) {
		return usagef("standard input is not a terminal: confirm with --yes, after flex2csi migrate plan")
	}
	return nil
}

// A session is a command that changes something, from its start to the table of results.
type session struct {
	env     environment
	o       *runOptions
	cluster *kube.Cluster
	runner  *migrate.Runner
}

// open connects, with the directory of the journal of this cluster.
func (o *runOptions) open(ctx context.Context, env environment, options migrate.Options, needsConfig bool) (*session, error) {
	cluster, planner, err := o.planner(ctx, env, needsConfig)
	if err != nil {
		return nil, err
	}
	if err := sameCluster(ctx, cluster, o.journal); err != nil {
		return nil, err
	}
	if err := planner.Watch(context.WithoutCancel(ctx)); err != nil { // it ends with the program
		return nil, err
	}
	options.Timeout = o.timeout
	if err := o.limit(&options, time.Now()); err != nil {
		return nil, err
	}
	options.By, options.Version = whoami(), version.Get().Version
	return &session{
		env: env, o: o, cluster: cluster,
		runner: &migrate.Runner{
			Client:  cluster.Objects(),
			Planner: planner,
			Journal: o.home.journal(cluster, o.journal),
			Options: options, Now: time.Now,
		},
	}, nil
}

// whoami returns user@host, for the journal and for other operators.
func whoami() string {
	name, host := "uid "+fmt.Sprint(os.Getuid()), "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// work calls do with the Lease, and handles Ctrl-C.
func (s *session) work(ctx context.Context, volumes int, do func(context.Context) ([]migrate.Result, error)) ([]migrate.Result, error) {
	if err := bindJournal(ctx, s.cluster, s.o.journal); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(s.o.journal, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of the journal: %w", err)
	}
	defer log.Close()
	// Whatever becomes of the terminal, no write ends the process or holds it up while a claim
	// has no volume.
	signal.Ignore(append(terminalStops(), syscall.SIGPIPE)...)
	screen := newScreen(unfiltered(s.env.err).(io.Writer)) // progress filters its lines, and redraws the last
	defer screen.close()
	p := newProgress(screen, canRedraw(s.env.err), log, volumes)
	lease, err := s.lease(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			p.say("the Lease could not be given back, and ends by itself: %v", err)
		}
	}()
	ctx, enough, end := untilInterruptedTwice(context.WithoutCancel(ctx), p)
	defer end()
	events := newClaimEvents(s.cluster.Objects(), p.say)
	defer events.close()
	s.runner.Lease, s.runner.Enough = lease, enough
	s.runner.Progress = func(e migrate.Event) {
		p.tell(e)
		events.tell(e)
	}
	defer p.run()()
	return do(ctx)
}

// lease excludes other migrations until it is released.
func (s *session) lease(ctx context.Context, p *progress) (*journal.Lock, error) {
	id, err := journal.ProcessID()
	if err != nil {
		id = "" // then the next one waits, if this one is killed
	}
	lease, err := journal.TakeLock(ctx, s.cluster.Objects(), journal.LockOptions{
		Namespace: string(s.o.home), Name: migrate.LeaseName, Process: id, Dead: journal.ProcessDead,
		Identity: fmt.Sprintf("%s/%d/%s", s.runner.Options.By, os.Getpid(), rand.Text()[:8]),
		Waiting: func(holder string) {
			p.say("%s has the Lease %s/%s; waiting for its end if that one is dead", holder, s.o.home, migrate.LeaseName)
		},
	})
	if errors.Is(err, journal.ErrLockHeld) {
		return nil, fmt.Errorf("%w; nothing was changed. Wait until that one is done: flex2csi migrate status", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	return lease, nil
}

// untilInterruptedTwice leaves time for an orderly end: the first Ctrl-C closes enough,
// the second one ends the context. A terminal that is closed (SIGHUP) asks for an orderly end,
// too, and never for more: the kernel, the shell and a session manager may each say so.
func untilInterruptedTwice(parent context.Context, p *progress) (ctx context.Context, enough <-chan struct{}, end func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, first, over := make(chan os.Signal, 8), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	stop := sync.OnceFunc(func() {
		close(first)
		p.say("interrupted: no volume is begun any more, and those under way stop where they have a PersistentVolume. Ctrl-C once more stops at once")
	})
	go func() {
		for asked := 0; ; {
			select {
			case <-over:
				return
			case is := <-signals:
				stop()
				if is == syscall.SIGHUP {
					continue
				}
			}
			if asked++; asked == 2 {
				p.say("interrupted again: stopping where it is; flex2csi migrate status says where that is")
				cancel()
			}
		}
	}()
	return ctx, first, func() {
		signal.Stop(signals)
		close(over)
		cancel()
	}
}

// report prints the results.
func (s *session) report(r *results, err error) error {
	if people := s.o.format.chosen == table || s.o.format.chosen == wide; len(r.all) > 0 || !people {
		if printErr := s.o.format.print(s.env.out, r.document(), r.show); printErr != nil {
			err = errors.Join(err, printErr)
		}
	}
	if err != nil {
		return err
	}
	return r.err()
}

// errDeclined: the operator did not confirm.
var errDeclined = errors.New("not confirmed: nothing was changed")

// confirm asks the operator to type yes.
func confirm(ctx context.Context, env environment, question string) error {
	fmt.Fprintf(env.err, "\n%s Type yes to go on: ", question)
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(env.in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(env.err)
		return errDeclined
	case line := <-answer:
		if line != "yes" {
			return errDeclined
		}
		return nil
	}
}
