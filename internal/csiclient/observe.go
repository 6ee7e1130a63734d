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
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// An Observer is called after each RPC, with gRPC's full name of the method and gRPC's
// name of the status.
type Observer interface {
	ObserveRPC(driver, method, code string, took time.Duration)
}

// intercept wraps each RPC. It removes the secrets of a request from the driver's error,
// before that goes to answers, records and logs.
func (c *Client) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	s := volumelog.Subject{CSIDriver: c.Name}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		s.VolumeHandle = r.GetVolumeId()
	}
	log := volumelog.From(ctx).And(s).Logger(c.log()).With("method", path.Base(method))
	logMessage(ctx, log, "request", req, req)
	start := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	took := time.Since(start)
	if c.Observer != nil {
		c.Observer.ObserveRPC(c.Name, method, status.Code(err).String(), took)
	}
	if err == nil {
		logMessage(ctx, log, "response", req, reply)
	} else if m, ok := req.(Message); ok {
		err = clean(err, m)
	}
	logEnd(ctx, log, changesVolume(s, method), err, took)
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
func logMessage(ctx context.Context, log *slog.Logger, kind string, req, message any) {
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
	log.DebugContext(ctx, "CSI message", "kind", kind, "body", strings.TrimSpace(string(text)))
}

// changesVolume reports whether an RPC does; NodeGetVolumeStats, once a minute, does not.
func changesVolume(s volumelog.Subject, method string) bool {
	return s.VolumeHandle != "" && !strings.Contains(method, "Get")
}

// logEnd logs the end of an RPC: at info level if it changes a volume, as a warning
// if such an RPC failed. Of the other RPCs the callers log more.
func logEnd(ctx context.Context, log *slog.Logger, changes bool, err error, took time.Duration) {
	attrs := []any{"duration", took}
	level := slog.LevelDebug
	if changes {
		level = slog.LevelInfo
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
