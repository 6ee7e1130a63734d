package flex

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// logKey is the key of the log in a context.
type logKey struct{}

// Log returns the log of the callout, for the Handle of a [Driver] and for pkg/mounter's
// Mounter.Log. Secrets of the call do not appear in it. Without --log-file and -v it is silent.
func Log(ctx context.Context) *slog.Logger {
	if log, ok := ctx.Value(logKey{}).(*slog.Logger); ok {
		return log
	}
	return slog.New(slog.DiscardHandler)
}

// Log opens the log of the call, once: a file if there is one, else a person's terminal
// with -v. A program with a configuration calls it with the file and the level of that;
// flags override both. Each line names the volume and the pod, and has the keys and values of
// about. Most calls have no log, and spend no time on one: it is nil then. A log that cannot
// be written stops no call: it is silent, but for a message at a terminal.
func (in *Invocation) Log(file string, level slog.Level, about ...any) *slog.Logger {
	if in.log != nil {
		return in.log
	}
	if in.logFile != "" {
		file = in.logFile
	}
	if in.is(CommandInit) {
		file = "" // init does no I/O that could keep the kubelet waiting
	}
	if file == "" && (in.verbosity == 0 || in.reply.Human == nil) {
		return nil
	}
	if in.verbosity > 0 {
		level = slog.LevelDebug
	}
	call := callOf(in.Args)
	redact := NewRedactor(call.Options).Redact
	subject := volumelog.OfDir(call.Dir).And(volumelog.Subject{
		PersistentVolume: call.VolumeName, Namespace: call.Options.PodNamespace, Pod: call.Options.PodName, PodUID: call.Options.PodUID,
	})
	about = append(about, subject.Attrs()...)
	if file == "" {
		in.log = volumelog.NewCallLog(in.reply.Human, level, redact, about...)
	} else {
		var err error
		if in.log, _, err = volumelog.OpenCallLog(in.name, file, level, redact, about...); err != nil && in.reply.Human != nil {
			fmt.Fprintf(in.reply.Human, "log the call: %v\n", err)
		}
	}
	return in.log
}

// callOf returns a call; an empty one for what is none.
func callOf(args []string) *Call {
	call, err := ParseCall(args)
	if err != nil {
		return &Call{}
	}
	return call
}

func (in *Invocation) logAnswer(status DriverStatus) {
	if in.log == nil || len(in.Args) == 0 {
		return
	}
	level := slog.LevelInfo
	if status.Status == StatusFailure {
		level = slog.LevelError
	}
	in.log.Log(context.Background(), level, "answered", "command", in.Args[0], "status", string(status.Status), "code", string(status.Code), "message", status.Message, "duration", time.Since(in.start))
}
