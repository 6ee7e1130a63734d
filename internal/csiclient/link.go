package csiclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// link is a connection to one process. It never reconnects, as gRPC does by default: the
// next process at the same socket may be another version or another driver.
type link struct {
	conn   *grpc.ClientConn
	socket syscall.RawConn
	// calls are the calls under way.
	calls sync.WaitGroup
	// features of the driver; nil: not asked for yet.
	features atomic.Pointer[csivol.Features]
}

// errLost is the error of a call on a broken link, before anything was sent. gRPC
// converts it to text.
var errLost = errors.New("the connection to the driver is lost")

// maxHeaders bounds the headers of an answer; the text of an error is one of them.
const maxHeaders = 256 << 10

// newLink connects to a socket, without an RPC.
func newLink(ctx context.Context, path string, more ...grpc.DialOption) (*link, error) {
	raw, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	socket, err := raw.(*net.UnixConn).SyscallConn()
	if err != nil {
		raw.Close()
		return nil, err
	}
	unused := make(chan net.Conn, 1)
	unused <- raw
	options := append([]grpc.DialOption{
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case raw := <-unused:
				return raw, nil
			default:
				return nil, errLost
			}
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Strict servers refuse a socket's path as authority
		// (kubernetes/kubernetes#112597).
		grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0),
		// The default is 16 MiB for each RPC. gRPC bounds messages to 4 MiB.
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}),
	}, more...)
	conn, err := grpc.NewClient("passthrough:///driver", options...)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return &link{conn: conn, socket: socket}, nil
}

// up reports whether the driver is still at the other end. It asks the kernel: gRPC
// notices later, and meanwhile the driver may have been replaced.
func (l *link) up() bool {
	if l.conn.GetState() != connectivity.Ready {
		return false
	}
	lost := false
	err := l.socket.Control(func(fd uintptr) {
		lost = ended(fd)
	})
	return err == nil && !lost
}

// release ends one use of the link.
func (l *link) release() { l.calls.Done() }

// closeWhenIdle closes the link when the last call is done: a driver that shuts
// down in good order still answers its calls.
func (l *link) closeWhenIdle() {
	go func() {
		l.calls.Wait()
		l.conn.Close()
	}()
}

// unsent reports whether a call was not sent because the link was lost.
func unsent(err error) bool {
	e, ok := errors.AsType[*csivol.RPCError](err)
	return ok && e.Code == flex.CodeUnavailable && strings.Contains(e.Message, errLost.Error())
}
