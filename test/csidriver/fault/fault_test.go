package fault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call calls NodeStageVolume for v1 through the injector and tells whether the work was
// done.
func call(ctx context.Context, i *Injector) (done bool, code codes.Code) {
	_, err := i.Unary(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v1"}, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"},
		func(context.Context, any) (any, error) { done = true; return &csi.NodeStageVolumeResponse{}, nil })
	return done, status.Code(err)
}

func TestRules(t *testing.T) {
	type result struct {
		done bool
		code codes.Code
	}
	ok := result{true, codes.OK}
	for name, tt := range map[string]struct {
		rules []Rule
		want  []result // of NodeStageVolume on v1, once for each
	}{
		"none":           {nil, []result{ok}},
		"before":         {[]Rule{{Code: codes.Aborted}}, []result{{false, codes.Aborted}, {false, codes.Aborted}}},
		"after":          {[]Rule{{Code: codes.Internal, After: true, Times: 1}}, []result{{true, codes.Internal}, ok}},
		"other method":   {[]Rule{{Method: "NodeUnstageVolume", Code: codes.Internal}}, []result{ok}},
		"pattern":        {[]Rule{{Method: "Node*", Code: codes.Internal}}, []result{{false, codes.Internal}}},
		"other volume":   {[]Rule{{Volume: "v2", Code: codes.Internal}}, []result{ok}},
		"skip and times": {[]Rule{{Code: codes.Aborted, Skip: 1, Times: 2}}, []result{ok, {false, codes.Aborted}, {false, codes.Aborted}, ok}},
		"in turn":        {[]Rule{{Code: codes.Aborted, Times: 1}, {Code: codes.Internal, Times: 1}}, []result{{false, codes.Aborted}, {false, codes.Internal}, ok}},
		"only a delay":   {[]Rule{{Delay: Duration(time.Millisecond)}}, []result{ok}},
	} {
		t.Run(name, func(t *testing.T) {
			i := New(tt.rules...)
			for n, want := range tt.want {
				if done, code := call(t.Context(), i); (result{done, code}) != want {
					t.Errorf("call %d: done %t, %s; want %+v", n, done, code, want)
				}
			}
		})
	}
}

func TestHang(t *testing.T) {
	i := New(Rule{Hang: true})
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if done, code := call(short, i); done || code != codes.DeadlineExceeded {
		t.Errorf("done %t, %s", done, code)
	}
	i.Set(Rule{Hang: true, Stubborn: true})
	gone, leave := context.WithCancel(t.Context())
	leave()
	result := make(chan bool)
	go func() { done, _ := call(gone, i); result <- done }()
	select {
	case <-result:
		t.Error("a stubborn call noticed that its caller had left")
	case <-time.After(50 * time.Millisecond):
	}
	i.Set()
	if !<-result {
		t.Error("a stubborn call did not go on")
	}
}

func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "faults.json")
	i := FromFile(name)
	expect := func(i *Injector, want codes.Code) {
		t.Helper()
		if _, code := call(t.Context(), i); code != want {
			t.Errorf("got %s, want %s", code, want)
		}
	}
	expect(i, codes.OK)
	if err := os.WriteFile(name, []byte(`[{"method": "NodeStageVolume", "code": "ABORTED", "delay": "1ms", "times": 2}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(i, codes.Aborted)
	// A driver that was killed and started again goes on counting.
	i = FromFile(name)
	expect(i, codes.Aborted)
	expect(i, codes.OK)
	if err := WriteFile(name, Rule{Code: codes.NotFound, Times: 1}); err != nil {
		t.Fatal(err)
	}
	expect(i, codes.NotFound)
	expect(i, codes.OK)
	if err := WriteFile(name, Rule{Code: codes.NotFound, Times: 1}); err != nil {
		t.Fatal(err)
	}
	expect(i, codes.NotFound) // written again, counted again
	if err := os.WriteFile(name, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(i, codes.Internal)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	expect(i, codes.OK)
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
