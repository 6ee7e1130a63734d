// Package csiclient calls the RPCs of a CSI driver over its sockets. It is the only
// package that knows gRPC; the bridge sees csivol structs and errors that are final or
// not.
package csiclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An Endpoint finds the socket of a service: a fixed one, or the one that a driver has
// registered with the kubelet, which may change.
type Endpoint func(ctx context.Context) (path string, err error)

// Fixed is an endpoint at a known socket, unix:///path or a path.
func Fixed(endpoint string) Endpoint {
	path := socketPath(endpoint)
	return func(context.Context) (string, error) { return path, nil }
}

func socketPath(endpoint string) string {
	return strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
}

// A Client is one CSI driver. Its zero value lacks a name and endpoints.
//
// Like the kubelet, it does not bound the RPCs under way: those that hang would keep out
// those that do not. The bridge makes one for a volume at a time, each with a deadline, so
// the volumes of the node bound their number.
type Client struct {
	// Name is compared with the driver's answer, in case the socket belongs to another
	// driver.
	Name string
	// Node is the endpoint of the node service.
	Node Endpoint
	// Controller is the endpoint of the controller service; nil if it cannot be
	// reached.
	Controller Endpoint
	// Observer, if set, is called after each RPC.
	Observer Observer
	// Log gets what changes volumes at info level, and every request and
	// response at debug level, secrets masked.
	Log *slog.Logger

	node, controller connection
}

// Close closes the connections, when the calls that use them are done.
func (c *Client) Close() error {
	c.node.close()
	c.controller.close()
	return nil
}

// onNode makes an RPC of the node service, after the driver's name and capabilities were
// checked on the same connection.
func (c *Client) onNode(ctx context.Context, method string, f func(csi.NodeClient, csivol.Features) error) error {
	return c.call(ctx, method, c.atNode(), func(l *link, known csivol.Features) error {
		return f(csi.NewNodeClient(l.conn), known)
	})
}

// onController makes an RPC of the controller service.
func (c *Client) onController(ctx context.Context, method string, f func(csi.ControllerClient, csivol.Features) error) error {
	return c.call(ctx, method, c.atController(), func(l *link, known csivol.Features) error {
		return f(csi.NewControllerClient(l.conn), known)
	})
}

// service is the node or the controller service of a driver.
type service struct {
	connection *connection
	find       Endpoint // nil: cannot be reached
	intercept  grpc.UnaryClientInterceptor
	ask        func(context.Context, *grpc.ClientConn, *csivol.Features) error
}

func (c *Client) atNode() service { return service{&c.node, c.Node, c.intercept, askNode} }

func (c *Client) atController() service {
	return service{&c.controller, c.Controller, c.intercept, askController}
}

// maxLost bounds how often a call tries again after a broken connection.
const maxLost = 3

// call makes an RPC. It tries again only if the RPC was not sent; other retries are up to
// the caller.
func (c *Client) call(ctx context.Context, method string, s service, f func(*link, csivol.Features) error) error {
	for lost := 0; ; lost++ {
		l, err := c.connected(ctx, s)
		if err != nil {
			return err
		}
		known, err := c.meet(ctx, l, s)
		again := err != nil && !l.up()
		if err == nil {
			err = rpcError(method, f(l, known))
			again = unsent(err)
		}
		l.release()
		if !again || lost == maxLost || ctx.Err() != nil {
			return err
		}
	}
}

// connected returns a link that is up, to be released. On an error, of any kind, the
// driver is unavailable and nothing was sent.
func (c *Client) connected(ctx context.Context, s service) (*link, error) {
	err := errors.New("its controller cannot be reached from this node (no controllerEndpoint)")
	if s.find != nil {
		var l *link
		if l, err = s.connection.get(ctx, s); err == nil {
			return l, nil
		}
	}
	return nil, &csivol.RPCError{Method: "connect", Code: flex.CodeUnavailable, Message: fmt.Sprintf("CSI driver %s: %v; is its pod running on this node?", c.Name, err), NoAnswer: true}
}

// rpcError converts a gRPC error; nil stays nil. An error without a status did not come
// from the driver.
func rpcError(method string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return &csivol.RPCError{Method: method, Code: flex.CodeUnavailable, Message: err.Error(), NoAnswer: true}
	}
	return &csivol.RPCError{Method: method, Code: code(s.Code()), Message: s.Message()}
}

// code converts a gRPC code: those of pkg/flex have the same names.
func code(c codes.Code) flex.Code {
	switch c {
	case codes.Canceled:
		return flex.CodeCanceled
	case codes.InvalidArgument, codes.OutOfRange:
		return flex.CodeInvalidArgument
	case codes.DeadlineExceeded:
		return flex.CodeDeadlineExceeded
	case codes.NotFound:
		return flex.CodeNotFound
	case codes.AlreadyExists:
		return flex.CodeAlreadyExists
	case codes.PermissionDenied, codes.Unauthenticated:
		return flex.CodePermissionDenied
	case codes.ResourceExhausted:
		return flex.CodeResourceExhausted
	case codes.FailedPrecondition:
		return flex.CodeFailedPrecondition
	case codes.Aborted:
		return flex.CodeAborted
	case codes.Unimplemented:
		return flex.CodeUnimplemented
	case codes.Unavailable:
		return flex.CodeUnavailable
	}
	return flex.CodeInternal
}
