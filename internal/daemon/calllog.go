package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/requestid"
	"github.com/flex2csi/flex2csi/internal/sensitive"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// callLogger returns a logger that adds the call to each line.
func (d *Daemon) callLogger(ctx context.Context, r *wire.Request) *slog.Logger {
	return requestid.Logger(ctx, d.Log).With("flexDriver", r.Driver, "command", r.Argv[0])
}

// logCall logs a call at debug level, with masked secrets.
func logCall(ctx context.Context, log *slog.Logger, r *wire.Request) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c, err := flex.ParseCall(r.Argv)
	if err != nil {
		return // the answer says what is wrong
	}
	attrs := []any{"timeout", r.Timeout()}
	for _, a := range [...]struct{ name, value string }{
		{"dir", c.Dir},
		{"device", c.Device},
		{"node", c.NodeName},
		{"volume", c.VolumeName},
		{"fsType", c.Options.FSType},
		{"podNamespace", c.Options.PodNamespace},
		{"pod", c.Options.PodName},
		{"podUID", c.Options.PodUID},
	} {
		if a.value != "" {
			attrs = append(attrs, a.name, a.value)
		}
	}
	if c.NewSize > 0 {
		attrs = append(attrs, "newSize", c.NewSize)
	}
	if len(c.Options.User) > 0 {
		attrs = append(attrs, "options", shown(c.Options))
	}
	if len(c.Options.Secrets) > 0 {
		attrs = append(attrs, "secretKeys", slices.Sorted(maps.Keys(c.Options.Secrets)))
	}
	log.DebugContext(ctx, "called", attrs...)
}

// shown returns a volume's own options; those that look secret are masked.
func shown(o flex.Options) map[string]string {
	redactor, all := flex.NewRedactor(o), make(map[string]string, len(o.User))
	for name, value := range o.User {
		all[name] = redactor.Redact(value)
		if sensitive.Key(name) {
			all[name] = sensitive.Mask
		}
	}
	return all
}

// logAnswer logs calls that change volumes at info level, and others at debug level.
func logAnswer(ctx context.Context, log *slog.Logger, status flex.DriverStatus, command flex.Command, took time.Duration) {
	level := slog.LevelInfo
	switch {
	case status.Status == flex.StatusFailure:
		level = slog.LevelError
	case command == flex.CommandIsAttached, command == flex.CommandWaitForAttach, command == flex.CommandInit, command == flex.CommandGetVolumeName:
		level = slog.LevelDebug
	}
	attrs := []any{"status", string(status.Status), "duration", took}
	if status.Code != "" {
		attrs = append(attrs, "code", string(status.Code))
	}
	if status.Message != "" {
		attrs = append(attrs, "message", status.Message)
	}
	log.Log(ctx, level, "answered", attrs...)
}
