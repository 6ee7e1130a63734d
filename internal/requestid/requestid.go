// Package requestid carries the name of a callout along its way through the
// daemon, so that every line of the log about it, down to the RPC, can be found
// by the name that flexdriver shows in its answer.
package requestid

import (
	"context"
	"log/slog"
)

// attr is the key of request ids in logs.
const attr = "request"

type key struct{}

// With returns a context for what is done because of the request id.
func With(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, key{}, id)
}

// From returns the request id of a context; empty for what the daemon does by itself,
// such as the reconciler's work.
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// Logger returns log with the request id of ctx on every line.
func Logger(ctx context.Context, log *slog.Logger) *slog.Logger {
	id := From(ctx)
	if id == "" {
		return log
	}
	return log.With(attr, id)
}
