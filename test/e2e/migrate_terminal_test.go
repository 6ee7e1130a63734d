package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// migrateTerminals are migrations that lose their operator.
func migrateTerminals() []scenario {
	return []scenario{
		{"migrate-terminal-dropped", "apply and rollback on a terminal, as over SSH, which is closed while there is no PersistentVolume, live and --rolling: the claim is Bound when the command has ended, the pod finds its lines, and resume finishes", migrateTerminalDropped},
	}
}

func migrateTerminalDropped(t *T) {
	live, single := t.volume(disk(), "live"), t.volume(share(), "single")
	t.follow(live)
	w := t.writer("pod", live)
	t.deployment("web", single)
	t.Cleanup(t.endWorkloads) // before the scenario's end, which deletes pods
	was, wasSingle := t.persistentVolume(live), t.persistentVolume(single)

	g, kubeconfig := t.gate()
	t.waitTold()
	t.dropped(g, live, "apply", "--kubeconfig", kubeconfig, "--timeout", "3m", live.name)
	t.wantCSI(live, was)
	t.wantMounts(live, w.pod, true, true)
	w.writes()
	t.dropped(g, live, "rollback", "--kubeconfig", kubeconfig, "--timeout", "3m", live.name)
	t.wantFlex(live, was)
	w.writes()
	w.note()
	t.delete(w.pod)

	// As in a cluster without install/migrate, where the pod has to be restarted.
	g, kubeconfig = t.gate("/namespaces/"+bridgestatus.Namespace+"/", "/namespaces/"+t.Namespace+"/")
	before := t.writerOf("web", single)
	t.dropped(g, single, "apply", "--rolling", "--kubeconfig", kubeconfig, "--timeout", "3m", single.name)
	t.wantCSI(single, wasSingle)
	after := t.writerOf("web", single)
	if after.pod.UID == before.pod.UID {
		t.Errorf("pod %s was not restarted", after.pod.Name)
	}
	t.wantMounts(single, after.pod, false, true)
	after.writes()
	after.note()
}

// dropped runs a command of flex2csi migrate on a terminal that is closed in the window. The claim
// gets its volume without help, and resume does the rest, if any.
func (t *T) dropped(g *gate, v *volume, args ...string) {
	t.Helper()
	t.closedInWindow(g, v, args...)
	t.wantBoundAgain(v)
	results, err := t.migrate("resume", "--timeout", "3m")
	t.must(err)
	if again, err := t.migrate("resume"); err != nil || len(again) > 0 {
		t.Errorf("resume leaves %+v: %v", again, err)
	}
	t.note("resume had %d to finish", len(results))
}

// closedInWindow closes the terminal at the first change that is asked for while there is no
// PersistentVolume. The API server gets the request later.
func (t *T) closedInWindow(g *gate, v *volume, args ...string) {
	t.Helper()
	if args[0] == "apply" && !tested() {
		args = append(args, "--accept", "node")
	}
	window, held := make(chan string, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	g.before = func(change string) {
		if t.gone(v) {
			select {
			case window <- change:
			default:
			}
			<-held
		}
	}
	t.migrating.Lock()
	defer t.migrating.Unlock()
	argv := append([]string{os.Getenv("FLEX2CSI_BINARY"), "migrate"}, args...)
	s := t.session(append(argv, "--journal", t.journal())...)
	defer s.keep(args...)
	before, _ := fileText(t.journalLog()) // the first command makes it
	s.answer("Type yes to go on: ", "yes")
	select {
	case change := <-window:
		t.note("%s: dropped before %s", args[0], change)
	case <-s.ended:
		t.Fatalf("%v ended before the window", args)
	case <-time.After(migrationPatience):
		t.Fatalf("%v never comes to the window", args)
	}
	t.must(s.screen.Close())
	time.Sleep(3 * time.Second) // for signals, and for what is written meanwhile
	select {
	case <-s.ended:
		t.Errorf("%v ended with its terminal, while there is no PersistentVolume", args)
	default:
	}
	began := time.Now()
	release()
	s.wantEnd(migrationPatience)
	g.before = nil
	log, err := fileText(t.journalLog())
	if t.check(err); !strings.Contains(log[len(before):], " interrupted: ") {
		t.Errorf("%v has not noticed the end of its terminal:\n%s", args, log[len(before):])
	}
	t.note("ended %.1f s after the window", time.Since(began).Seconds())
}

// journalLog is what commands have said, also without a terminal.
func (t *T) journalLog() string { return filepath.Join(t.journal(), "log") }

// keep writes down what was on the screen, and what the journal has of the time without one.
func (s *session) keep(args ...string) {
	s.t.Helper()
	log, err := fileText(s.t.journalLog())
	m := &migration{t: s.t}
	m.said.WriteString(s.text() + "\n" + log)
	s.t.check(errors.Join(err, m.keep(strings.Join(args, " "))))
}

// gone: there is no PersistentVolume.
func (t *T) gone(v *volume) bool {
	_, err := t.client.CoreV1().PersistentVolumes().Get(t.ctx(), v.name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// wantBoundAgain: the claim is Bound without any help, as soon as the control plane has seen the
// PersistentVolume.
func (t *T) wantBoundAgain(v *volume) {
	t.Helper()
	t.wait("claim "+v.name+" to be Bound", func() error {
		claim, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Get(t.ctx(), v.name, metav1.GetOptions{})
		if err == nil && (claim.Status.Phase != corev1.ClaimBound || t.gone(v)) {
			err = fmt.Errorf("it is %s, without its PersistentVolume: %v", claim.Status.Phase, t.gone(v))
		}
		return err
	})
}
