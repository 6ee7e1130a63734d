package volumelog

// This file writes the log of a process that lives for one call. Nothing
// that goes wrong with a log may stop or delay the call, so all of it is
// silent, and every text goes through the call's redaction first.

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// Journal as the name of a file stands for the journal of systemd.
const Journal = "journal"

// NewCallLog returns a logger for people.
func NewCallLog(w io.Writer, level slog.Level, redact func(string) string, about ...any) *slog.Logger {
	log := slog.New(slog.NewTextHandler(w, options(level, redact))).With(about...)
	klog.SetSlogLogger(log) // what k8s.io/mount-utils says
	return log
}

func options(level slog.Level, redact func(string) string) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: Redacting(redact)}
}

// Redacting returns a slog.HandlerOptions.ReplaceAttr that has every text go
// through redact.
func Redacting(redact func(string) string) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		switch a.Value.Kind() {
		case slog.KindString:
			a.Value = slog.StringValue(redact(a.Value.String()))
		case slog.KindAny: // errors, lists, whatever klog is given
			a.Value = slog.StringValue(redact(fmt.Sprint(a.Value.Any())))
		}
		return a
	}
}
