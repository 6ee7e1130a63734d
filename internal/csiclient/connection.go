package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// connection connects to a service of a driver. It has one link after the other:
// the driver may restart, also at another socket. The zero value has no link yet.
type connection struct {
	mu      sync.Mutex
	link    *link
	attempt *attempt // to get a link, if one is being made
	closed  bool

	// For status.
	made    int       // links, so far
	since   time.Time // the last one was made
	version string    // of the driver
	err     error     // of the last attempt to connect and identify the driver
}

// attempt is an attempt to connect, for all callers that wait for it.
type attempt struct {
	done chan struct{}
	err  error
}

const (
	// dialWait is how long a call waits for a driver that does not listen: it may be
	// restarting. Then the call fails as unavailable, which tells a driver that is down
	// from a slow one.
	dialWait = 3 * time.Second
	// redial is the pause between two tries. Each looks the socket up again.
	redial = 50 * time.Millisecond
)

var errClosed = errors.New("flex2csi is shutting down")

// get returns a link that is up, to be released. If there is none it looks the socket up
// again.
func (c *connection) get(ctx context.Context, s service) (*link, error) {
	for {
		l, a := c.acquire(ctx, s)
		if l != nil {
			return l, nil
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// acquire returns the link, or the attempt to get one.
func (c *connection) acquire(ctx context.Context, s service) (*link, *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		if c.link.up() {
			c.link.calls.Add(1)
			return c.link, nil
		}
		c.link.closeWhenIdle()
		c.link = nil
	}
	if c.attempt == nil {
		c.attempt = &attempt{done: make(chan struct{})}
		// Not ctx: other callers wait for the same attempt.
		go c.connect(context.WithoutCancel(ctx), c.attempt, s)
	}
	return nil, c.attempt
}

func (c *connection) connect(ctx context.Context, a *attempt, s service) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	l, err := connectUntil(ctx, s)
	c.mu.Lock()
	if err == nil && c.closed {
		l.closeWhenIdle()
		l, err = nil, errClosed
	}
	c.link, c.attempt, c.err = l, nil, err
	if l != nil {
		c.made, c.since = c.made+1, time.Now()
	}
	c.mu.Unlock()
	a.err = err
	close(a.done)
}

// connectUntil tries until ctx ends.
func connectUntil(ctx context.Context, s service) (*link, error) {
	var why error
	for {
		l, err := connectOnce(ctx, s)
		if err == nil {
			return l, nil
		}
		// At the deadline, the error before says more. A dialer may notice the
		// deadline before the context does.
		if why == nil || ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			why = err
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
			return nil, why
		}
	}
}

func connectOnce(ctx context.Context, s service) (*link, error) {
	path, err := s.find(ctx)
	if err != nil {
		return nil, err
	}
	l, err := newLink(ctx, path, grpc.WithUnaryInterceptor(s.intercept))
	if err != nil {
		return nil, err
	}
	l.conn.Connect()
	for {
		switch state := l.conn.GetState(); state {
		case connectivity.Ready:
			return l, nil
		case connectivity.Idle, connectivity.Connecting:
			if l.conn.WaitForStateChange(ctx, state) {
				continue
			}
		}
		l.conn.Close()
		return nil, fmt.Errorf("no process answers at %s", path)
	}
}

// status returns the state of the connection, without a request.
func (c *connection) status(service string) csivol.Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := csivol.Connection{Service: service, Since: c.since, Version: c.version, Made: c.made}
	s.Connected = c.link != nil && c.link.up()
	if c.err != nil {
		s.LastError = c.err.Error()
	}
	return s
}

// met records the result of identifying the driver.
func (c *connection) met(version string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if err == nil {
		c.version = version
	}
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.closeWhenIdle()
		c.link = nil
	}
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	if path == "" {
		return nil, errors.New("the driver has no socket")
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
}
