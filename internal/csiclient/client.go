// Package csiclient speaks CSI to one driver over its sockets. It is the only
// package that knows gRPC; the bridge sees csivol structs and errors that are
// final or not.
package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An Endpoint finds the socket of a service: a fixed one, or one that a driver
// has registered with the kubelet and that may be another tomorrow.
type Endpoint func(ctx context.Context) (path string, err error)

// Fixed is an endpoint that is known, as unix:///path or a path.
func Fixed(endpoint string) Endpoint {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	return func(context.Context) (string, error) { return path, nil }
}

// A Client is one CSI driver. Its zero value lacks a name and endpoints.
type Client struct {
	// Name is what the driver must call itself: a guard against a socket that
	// belongs to another one.
	Name string
	// Node is where the node service is.
	Node Endpoint
	// Controller is where the controller service is; nil if it cannot be
	// reached from here.
	Controller Endpoint

	node, controller connection

	mu       sync.Mutex
	features *csivol.Features // of the connection that is up; nil: to be asked
}

// connection is a gRPC connection to a path. It is made when it is needed,
// and again when the path has changed.
type connection struct {
	mu   sync.Mutex
	path string
	conn *grpc.ClientConn
}

// dialWait is how long a call waits for a driver that does not listen: it may
// be restarting. After that the call fails as unavailable.
const dialWait = 3 * time.Second

// get returns the connection. One that is up is used as it is; otherwise the
// driver may have moved, and is looked for again.
func (c *connection) get(ctx context.Context, find Endpoint) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.conn.GetState() == connectivity.Ready {
		return c.conn, nil
	}
	path, err := find(ctx)
	if err != nil {
		return nil, err
	}
	if c.conn != nil && c.path == path {
		return c.conn, nil
	}
	if c.conn != nil {
		c.conn.Close()
	}
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Strict servers refuse a socket's path as authority
		// (kubernetes/kubernetes#112597).
		grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("driver socket %s: %w", path, err)
	}
	c.conn, c.path = conn, path
	return conn, nil
}

// Close closes the connections.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range []*connection{&c.node, &c.controller} {
		conn.mu.Lock()
		if conn.conn != nil {
			errs = append(errs, conn.conn.Close())
			conn.conn = nil
		}
		conn.mu.Unlock()
	}
	return errors.Join(errs...)
}

// ready waits a little for a connection, so that "the driver is down" and "the
// driver is slow" can be told apart.
func ready(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("nobody answers at %s", conn.Target())
		}
	}
}

// call makes one RPC on the node's or the controller's connection. A driver
// that is not there is unavailable, whatever the reason, and nothing was sent.
func (c *Client) call(ctx context.Context, conn *connection, find Endpoint, method string, f func(*grpc.ClientConn) error) error {
	unavailable := func(err error) error {
		return &csivol.RPCError{Method: method, Code: flex.CodeUnavailable, Message: fmt.Sprintf("CSI driver %s: %v; is its pod running on this node?", c.Name, err), NoAnswer: true}
	}
	if find == nil {
		return unavailable(errors.New("its controller cannot be reached from this node (no controllerEndpoint)"))
	}
	cc, err := conn.get(ctx, find)
	if err != nil {
		return unavailable(err)
	}
	if err := ready(ctx, cc); err != nil {
		c.lost()
		return unavailable(err)
	}
	err = f(cc)
	if err == nil {
		return nil
	}
	e := rpcError(method, err)
	if e.Code == flex.CodeUnavailable {
		c.lost()
	}
	return e
}

// lost forgets what the driver can do: the next one may be another version.
func (c *Client) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.features = nil
}

// rpcError turns a gRPC error into ours. One without a status did not come
// from the driver.
func rpcError(method string, err error) *csivol.RPCError {
	s, ok := status.FromError(err)
	if !ok {
		return &csivol.RPCError{Method: method, Code: flex.CodeUnavailable, Message: err.Error(), NoAnswer: true}
	}
	return &csivol.RPCError{Method: method, Code: code(s.Code()), Message: s.Message()}
}

// code is 1:1: pkg/flex took its codes from gRPC.
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

// onNode and onController make an RPC on the one or the other connection.
func (c *Client) onNode(ctx context.Context, method string, f func(csi.NodeClient) error) error {
	return c.call(ctx, &c.node, c.Node, method, func(cc *grpc.ClientConn) error { return f(csi.NewNodeClient(cc)) })
}

func (c *Client) onController(ctx context.Context, method string, f func(csi.ControllerClient) error) error {
	return c.call(ctx, &c.controller, c.Controller, method, func(cc *grpc.ClientConn) error { return f(csi.NewControllerClient(cc)) })
}

// socketExists is for discovery: a registration that was left over names a
// socket that nobody listens at.
func socketExists(path string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("unix", path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
