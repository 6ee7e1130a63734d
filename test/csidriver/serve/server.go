package serve

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
)

// A Server is the sockets of one driver.
type Server struct {
	sockets []socket
	// refused gets what makes a registered driver give up.
	refused chan error
}

type socket struct {
	listener net.Listener
	grpc     *grpc.Server
}

// NewServer returns a server without sockets.
func NewServer() *Server { return &Server{refused: make(chan error, 1)} }

// Listen opens a socket for services. Serve answers at it.
func (s *Server) Listen(path string, services func(*grpc.Server), interceptors ...grpc.UnaryServerInterceptor) error {
	l, err := listenAt(path)
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...))
	services(g)
	s.sockets = append(s.sockets, socket{listener: l, grpc: g})
	return nil
}

// Close closes the sockets of a server that has not served.
func (s *Server) Close() {
	for _, socket := range s.sockets {
		socket.listener.Close()
	}
}

// stopWait is how long calls may take to finish when the driver is to stop.
const stopWait = 5 * time.Second

// Serve answers until ctx ends, then finishes what it is at.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.sockets))
	for _, socket := range s.sockets {
		go func() { failed <- socket.grpc.Serve(socket.listener) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-s.refused:
	}
	stopped := make(chan struct{})
	go func() {
		for _, socket := range s.sockets {
			socket.grpc.GracefulStop()
		}
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(stopWait):
		for _, socket := range s.sockets {
			socket.grpc.Stop()
		}
	}
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
}
