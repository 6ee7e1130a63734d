package fault

import (
	"context"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Injector applies rules. Make one with New or FromFile.
type Injector struct {
	mu    sync.Mutex
	rules []Rule
	used  []int // how often each rule would have fitted
	// generation changes with the rules.
	generation int
	file       *file // nil without one
}

// New returns an injector that is steered from Go.
func New(rules ...Rule) *Injector {
	i := &Injector{}
	i.Set(rules...)
	return i
}

// Set replaces the rules, and lets go of calls that hang; without any the
// driver works.
func (i *Injector) Set(rules ...Rule) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.set(rules, make([]int, len(rules)))
}

func (i *Injector) set(rules []Rule, used []int) {
	i.rules, i.used = rules, used
	i.generation++
}

// Unary is the interceptor, for csidriver.Config.Inner.
func (i *Injector) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	rule, generation, err := i.find(path.Base(info.FullMethod), volumeOf(req))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "fault injection: %v", err)
	}
	if rule == nil {
		return handler(ctx, req)
	}
	if rule.Stubborn {
		ctx = context.WithoutCancel(ctx)
	}
	if rule.After {
		// What a rule does afterwards it does to those who were served.
		answer, err := handler(ctx, req)
		if err != nil {
			return nil, err
		}
		if err := i.apply(ctx, rule, generation); err != nil {
			return nil, err
		}
		return answer, nil
	}
	if err := i.apply(ctx, rule, generation); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (i *Injector) apply(ctx context.Context, r *Rule, generation int) error {
	select {
	case <-time.After(time.Duration(r.Delay)):
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	for r.Hang && !i.changed(generation) {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if r.Kill {
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
		select {}
	}
	if r.Code == codes.OK {
		return nil
	}
	message := r.Message
	if message == "" {
		message = "injected fault"
	}
	return status.Error(r.Code, message)
}

// find returns the rule for a call, or nil.
func (i *Injector) find(method, volume string) (*Rule, int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.reload(); err != nil {
		return nil, 0, err
	}
	for n, r := range i.rules {
		if !r.fits(method, volume) || r.Times > 0 && i.used[n] >= r.Skip+r.Times {
			continue
		}
		limited := r.Skip > 0 || r.Times > 0
		if limited {
			i.used[n]++
			if err := i.file.saveUsed(i.used); err != nil {
				return nil, 0, err
			}
		}
		if i.used[n] <= r.Skip && limited {
			continue
		}
		return &r, i.generation, nil
	}
	return nil, i.generation, nil
}

func (i *Injector) changed(generation int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reload() != nil || i.generation != generation
}

func volumeOf(req any) string {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}
