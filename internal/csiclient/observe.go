package csiclient

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/requestid"
)

// An Observer is called after each RPC, with gRPC's full name of the method and gRPC's
// name of the status.
type Observer interface {
	ObserveRPC(driver, method, code string, took time.Duration)
}

// intercept wraps each RPC. It removes the secrets of a request from the driver's error,
// before that goes to answers, records and logs.
func (c *Client) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	log := requestid.Logger(ctx, c.log())
	c.logMessage(ctx, log, "request", method, req, req)
	start := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	took := time.Since(start)
	if c.Observer != nil {
		c.Observer.ObserveRPC(c.Name, method, status.Code(err).String(), took)
	}
	if err == nil {
		c.logMessage(ctx, log, "response", method, req, reply)
	} else if m, ok := req.(Message); ok {
		err = clean(err, m)
	}
	c.logEnd(ctx, log, method, req, err, took)
	return err
}

// clean removes the secrets of a request from an error.
func clean(err error, req Message) error {
	s, ok := status.FromError(err)
	if !ok {
		return err // not from the driver
	}
	if text := redactor(req).Redact(s.Message()); text != s.Message() {
		return status.Error(s.Code(), text)
	}
	return err
}

// logMessage logs a request or a response at debug level, with masked secrets.
func (c *Client) logMessage(ctx context.Context, log *slog.Logger, kind, method string, req, message any) {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	r, isRequest := req.(Message)
	m, ok := message.(Message)
	if !isRequest || !ok {
		return
	}
	node := Show(m, redactor(r).Redact)
	node.Style = yaml.FlowStyle // one line, without the escapes that JSON in JSON would need
	text, err := yaml.Marshal(node)
	if err != nil {
		text = []byte(err.Error())
	}
	log.DebugContext(ctx, "CSI message", "kind", kind, "csiDriver", c.Name, "method", path.Base(method), "body", strings.TrimSpace(string(text)))
}

// logEnd logs the end of an RPC: at info level if it changes a volume, as a warning
// if such an RPC failed. Of the other RPCs the callers log more.
func (c *Client) logEnd(ctx context.Context, log *slog.Logger, method string, req any, err error, took time.Duration) {
	attrs := []any{"csiDriver", c.Name, "method", path.Base(method), "duration", took}
	level := slog.LevelDebug
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		attrs = append(attrs, "volumeHandle", r.GetVolumeId())
		if !strings.Contains(method, "Get") { // as in NodeGetVolumeStats, once a minute
			level = slog.LevelInfo
		}
	}
	if code := status.Code(err); code != codes.OK {
		if level == slog.LevelInfo {
			level = slog.LevelWarn
		}
		attrs = append(attrs, "code", code.String(), "error", status.Convert(err).Message())
	}
	log.Log(ctx, level, "called the CSI driver", attrs...)
}

func (c *Client) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// Reach connects to the services of the driver and asks for their capabilities, as the
// first call does.
func (c *Client) Reach(ctx context.Context) error {
	_, err := c.Features(ctx)
	return err
}

// Connections returns the state of the connections to the services of the driver. They
// are made on demand.
func (c *Client) Connections() []csivol.Connection {
	all := []csivol.Connection{c.node.status("node")}
	if c.Controller != nil {
		all = append(all, c.controller.status("controller"))
	}
	return all
}
