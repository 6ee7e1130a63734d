package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/flex2csi/flex2csi/internal/calllog"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// logger returns where the call is logged: a file if there is one, else a
// person's terminal if asked for. Most calls have no log, and spend no time on
// one.
func (c *callout) logger(config *driverconfig.Configuration, args []string) (*slog.Logger, func()) {
	file := config.Log.File
	if c.logFile != "" {
		file = c.logFile
	}
	if len(args) > 0 && args[0] == string(flex.CommandInit) {
		file = "" // init does no I/O that could keep the kubelet waiting
	}
	if file == "" && (c.verbosity == 0 || c.reply.Human == nil) {
		return nil, func() {}
	}
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(config.Log.Level)) // validated; empty leaves info
	if c.verbosity > 0 {
		level = slog.LevelDebug
	}
	call := callOf(args)
	redact := flex.NewRedactor(call.Options).Redact
	about := volumelog.Of(call)
	if config.Backend == driverconfig.BackendCSI {
		c.request = wire.NewID()
		about.Request = c.request
	}
	if file != "" {
		return calllog.Open(file, level, redact, about)
	}
	return calllog.New(c.reply.Human, level, redact, about), func() {}
}

// callOf returns a call; an empty one for what is none.
func callOf(args []string) *flex.Call {
	call, err := flex.ParseCall(args)
	if err != nil {
		return &flex.Call{}
	}
	return call
}

func logCall(log *slog.Logger, args []string, status flex.DriverStatus, took time.Duration) {
	if log == nil || len(args) == 0 {
		return
	}
	level := slog.LevelInfo
	if status.Status == flex.StatusFailure {
		level = slog.LevelError
	}
	log.Log(context.Background(), level, "answered", "command", args[0], "status", string(status.Status), "code", string(status.Code), "message", status.Message, "duration", took)
}
