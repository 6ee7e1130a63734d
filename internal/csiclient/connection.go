package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// connection is a gRPC connection to a service of a driver. It is made when it
// is needed, and again when it was lost, perhaps to another socket. The zero
// value is not connected.
type connection struct {
	mu      sync.Mutex
	path    string
	conn    *grpc.ClientConn
	attempt *attempt // to connect, if one is being made

	// generation counts connections. What was found out about the driver
	// behind one, its features, need not be true of the next.
	generation int
	features   *csivol.Features
}

// attempt is one of getting connected, for all who wait for it.
type attempt struct {
	done chan struct{}
	conn *grpc.ClientConn
	err  error
}

const (
	// dialWait is how long a call waits for a driver that does not listen: it
	// may be restarting. After that the call fails as unavailable, so that "the
	// driver is down" and "the driver is slow" can be told apart.
	dialWait = 3 * time.Second
	// redial is the pause between two tries, each of which looks for the socket
	// anew.
	redial = 50 * time.Millisecond
)

// get returns the connection when it is up. One that is up is used as it is;
// otherwise the driver may have moved, and is looked for again.
func (c *connection) get(ctx context.Context, find Endpoint) (*grpc.ClientConn, error) {
	c.mu.Lock()
	if c.conn != nil && c.conn.GetState() == connectivity.Ready {
		defer c.mu.Unlock()
		return c.conn, nil
	}
	a := c.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		c.attempt = a
		// Not ctx: others wait for the same.
		go c.connect(context.WithoutCancel(ctx), a, find)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) connect(ctx context.Context, a *attempt, find Endpoint) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	for {
		conn, err := c.try(ctx, find)
		if err == nil {
			a.conn, a.err = conn, nil
			break
		}
		// When time is up, what was wrong before says more.
		if a.err == nil || ctx.Err() == nil {
			a.err = err
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	c.attempt = nil
	c.mu.Unlock()
	close(a.done)
}

// try looks for the socket and waits until the connection to it is up or has
// failed.
func (c *connection) try(ctx context.Context, find Endpoint) (*grpc.ClientConn, error) {
	path, err := find(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.to(path)
	if err != nil {
		return nil, fmt.Errorf("driver socket %s: %w", path, err)
	}
	conn.ResetConnectBackoff()
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return nil, whyNot(ctx, path)
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return nil, whyNot(ctx, path)
			}
		}
	}
}

// whyNot says what is wrong with a socket, which gRPC does not.
func whyNot(ctx context.Context, path string) error {
	conn, err := dial(ctx, path)
	if err != nil {
		return err
	}
	conn.Close()
	return fmt.Errorf("nobody answers at %s", path)
}

// to returns the connection to a path; another one is given up for it.
func (c *connection) to(path string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	old := c.conn
	if old != nil && c.path == path && old.GetState() != connectivity.Shutdown {
		c.mu.Unlock()
		return old, nil
	}
	conn, err := newConn(path, grpc.WithStatsHandler(newDriver{forget: c.forget}))
	c.conn, c.path = conn, path
	c.mu.Unlock()
	// Not under the lock: what goes on in a connection may be waiting for it.
	if old != nil {
		old.Close()
	}
	return conn, err
}

func (c *connection) close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.features = nil, nil
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// newConn makes a connection to a socket.
func newConn(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	// The resolver for unix: takes a path for a URL, which it is not.
	return grpc.NewClient("passthrough:///driver", append(options,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Strict servers refuse a socket's path as authority
		// (kubernetes/kubernetes#112597).
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
	)...)
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	if path == "" {
		return nil, errors.New("the driver has no socket")
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
}

// known returns what was found out about the driver behind this connection,
// nil if nothing was yet, and the generation that it belongs to.
func (c *connection) known() (*csivol.Features, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.features, c.generation
}

// learn keeps what was found out about a driver, unless it is another by now.
func (c *connection) learn(f csivol.Features, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation {
		c.features = &f
	}
}

func (c *connection) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.features = nil
}

// newDriver forgets the driver when a connection begins. gRPC connects by
// itself when it is called at the wrong moment, so get does not see all.
type newDriver struct{ forget func() }

func (d newDriver) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		d.forget()
	}
}

func (newDriver) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (newDriver) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (newDriver) HandleRPC(context.Context, stats.RPCStats)                         {}
