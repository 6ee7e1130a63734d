package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// callLogger returns a logger that adds the call, and what is known of its volume, to each
// line.
func (d *Daemon) callLogger(ctx context.Context, r *wire.Request) *slog.Logger {
	return volumelog.Logger(ctx, d.Log).With("flexDriver", r.Driver, "command", r.Argv[0])
}

// begin returns the context of a call, for all lines about it, and logs the call.
func (d *Daemon) begin(ctx context.Context, r *wire.Request) context.Context {
	s := volumelog.Subject{Request: r.ID}
	c, err := flex.ParseCall(r.Argv)
	if err != nil {
		return volumelog.With(ctx, s) // the answer says what is wrong
	}
	ctx = volumelog.With(ctx, s.And(volumelog.OfDir(c.Dir)).And(volumelog.Subject{
		PersistentVolume: c.VolumeName, Namespace: c.Options.PodNamespace, Pod: c.Options.PodName, PodUID: c.Options.PodUID,
	}))
	logCall(ctx, d.callLogger(ctx, r), c, r.Timeout())
	return ctx
}

// logCall logs a call at debug level, with masked secrets.
func logCall(ctx context.Context, log *slog.Logger, c *flex.Call, timeout time.Duration) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attrs := []any{"timeout", timeout}
	for _, a := range [...]struct{ name, value string }{
		{"device", c.Device},
		{"node", c.NodeName},
		{"fsType", c.Options.FSType},
	} {
		if a.value != "" {
			attrs = append(attrs, a.name, a.value)
		}
	}
	if c.NewSize > 0 {
		attrs = append(attrs, "newSize", c.NewSize)
	}
	if len(c.Options.User) > 0 {
		attrs = append(attrs, slog.Group("options", shown(c.Options)...))
	}
	if len(c.Options.Secrets) > 0 {
		attrs = append(attrs, "secretKeys", strings.Join(slices.Sorted(maps.Keys(c.Options.Secrets)), ","))
	}
	log.DebugContext(ctx, "called", attrs...)
}

// shown returns a volume's own options; those that look secret are masked.
func shown(o flex.Options) (attrs []any) {
	redactor := flex.NewRedactor(o)
	for _, name := range slices.Sorted(maps.Keys(o.User)) {
		value := redactor.Redact(o.User[name])
		if guard.SensitiveKey(name) {
			value = guard.Mask
		}
		attrs = append(attrs, name, value)
	}
	return attrs
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
