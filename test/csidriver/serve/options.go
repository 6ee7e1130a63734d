// Package serve is what all CSI drivers of the tests have around their
// services: sockets that survive a kill -9, registration with a kubelet, faults
// and a log of calls, and the flags for them. It knows no CSI, so that drivers
// built with another version of the specification can use it.
package serve

import (
	"context"
	"slices"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// Options are what every driver can be told.
type Options struct {
	// Name is what the driver calls itself.
	Name string
	// Endpoint is its socket, as unix:///path or a path.
	Endpoint string
	// RegisterDir is a kubelet's directory, to register there; "": do not.
	RegisterDir string
	// Faults is a file of package fault, CallLog one of package calls; "": none.
	Faults, CallLog string
}

// AddFlags makes flags of them. What Name and Endpoint have now are the
// defaults; endpoint says it in words.
func (o *Options) AddFlags(f *pflag.FlagSet, endpoint string) {
	f.StringVar(&o.Name, "name", o.Name, "what the driver calls itself")
	f.StringVar(&o.Endpoint, "endpoint", o.Endpoint, "the driver's socket"+endpoint)
	f.StringVar(&o.RegisterDir, "register", "", "a kubelet's directory, to register there as node-driver-registrar would")
	f.StringVar(&o.Faults, "faults", "", "a JSON file with faults to inject, read again when it changes")
	f.StringVar(&o.CallLog, "call-log", "", "a file to which each call is appended as JSON lines")
}

// Interceptors are where faults and log come in: Outer sees what the caller
// sees, Inner is next to the work.
type Interceptors struct {
	Outer, Inner []grpc.UnaryServerInterceptor

	log *calls.Log
}

// Interceptors opens what the options name.
func (o *Options) Interceptors() (*Interceptors, error) {
	i := &Interceptors{}
	if o.Faults != "" {
		i.Inner = append(i.Inner, fault.FromFile(o.Faults).Unary)
	}
	if o.CallLog == "" {
		return i, nil
	}
	log, err := calls.Open(o.CallLog)
	if err != nil {
		return nil, err
	}
	i.log = log
	i.Outer, i.Inner = append(i.Outer, log.Answers), append(i.Inner, log.Work)
	return i, nil
}

// Close closes the log.
func (i *Interceptors) Close() error {
	if i.log == nil {
		return nil
	}
	return i.log.Close()
}

// Run serves a driver that needs nothing else until ctx ends. What is part of
// its work, and so comes after log and faults, is in work.
func Run(ctx context.Context, o *Options, services func(*grpc.Server), work ...grpc.UnaryServerInterceptor) error {
	i, err := o.Interceptors()
	if err != nil {
		return err
	}
	defer i.Close()
	s := NewServer()
	defer s.Close()
	path, err := SocketPath(o.Endpoint)
	if err != nil {
		return err
	}
	if err := s.Listen(path, services, slices.Concat(i.Outer, i.Inner, work)...); err != nil {
		return err
	}
	if o.RegisterDir != "" {
		if err := s.Register(o.RegisterDir, o.Name, path); err != nil {
			return err
		}
	}
	return s.Serve(ctx)
}
