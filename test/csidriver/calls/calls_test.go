package calls

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "calls")
	log, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The work is done, and an error answered.
	lie := func(ctx context.Context, req any) (any, error) {
		if _, err := log.Work(ctx, req, nil, func(context.Context, any) (any, error) { return &csi.NodeStageVolumeResponse{}, nil }); err != nil {
			return nil, err
		}
		return nil, status.Error(codes.Internal, "no")
	}
	req := &csi.NodeStageVolumeRequest{VolumeId: "v1", StagingTargetPath: "/staging", Secrets: map[string]string{"password": "swordfish"}, VolumeContext: map[string]string{"a": "swordfish"}}
	if _, err := log.Answers(t.Context(), req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeStageVolume"}, lie); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"id":"x","begin":true,"method":"NodeUnstageVolume","volume":"v1"}` + "\n" + `{"id":"y","beg`); err != nil {
		t.Fatal(err)
	}
	list, err := Read(name)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if !list[0].Ended() || !list[0].Done() || list[1].Ended() || list[1].Done() {
		t.Errorf("got %+v", list)
	}
	list[0].Start, list[0].End = time.Time{}, time.Time{}
	want := []Call{
		{Method: "NodeStageVolume", Volume: "v1", Path: "/staging", Code: "Internal", Message: "no", Work: "OK"},
		{Method: "NodeUnstageVolume", Volume: "v1"},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"NodeStageVolume v1 /staging"}, Leftovers(list)); diff != "" {
		t.Error(diff)
	}
}

// TestTorn: a driver was killed in the middle of a line, and the next one goes on.
func TestTorn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "calls")
	if err := os.WriteFile(name, []byte(`{"id":"x","begin":true,"method":"NodeUns`), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := log.write(line{ID: "y", Begin: true, Method: "NodeStageVolume", Volume: "v"}); err != nil {
		t.Fatal(err)
	}
	list, err := Read(name)
	if err != nil || len(list) != 1 || list[0].Method != "NodeStageVolume" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := os.WriteFile(name, []byte("{\"id\":garbage}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil {
		t.Error("a line that is no JSON was read")
	}
}

// TestLate: a call that comes after its caller has left is not begun.
func TestLate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "calls")
	log, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = log.Answers(ctx, &csi.NodePublishVolumeRequest{}, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodePublishVolume"}, func(context.Context, any) (any, error) {
		t.Error("it was begun")
		return nil, nil
	})
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if list, err := Read(name); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestLeftovers(t *testing.T) {
	end := time.Unix(1, 0)
	did := func(method, path, node string) Call {
		return Call{Method: method, Volume: "v", Path: path, Node: node, End: end, Work: "OK", Code: "OK"}
	}
	failed := func(c Call) Call { c.Work = "Internal"; return c }
	died := func(c Call) Call { c.Work, c.Code, c.End = "", "", time.Time{}; return c }
	for name, tt := range map[string]struct {
		list []Call
		want []string
	}{
		"all undone": {list: []Call{
			did("ControllerPublishVolume", "", "n"), did("NodeStageVolume", "/s", ""), did("NodePublishVolume", "/t", ""),
			did("NodeUnpublishVolume", "/t", ""), did("NodeUnstageVolume", "/s", ""), did("ControllerUnpublishVolume", "", ""),
		}},
		"another target": {
			list: []Call{did("NodePublishVolume", "/t", ""), did("NodePublishVolume", "/u", ""), did("NodeUnpublishVolume", "/t", "")},
			want: []string{"NodePublishVolume v /u"},
		},
		"failed":           {list: []Call{failed(did("NodeStageVolume", "/s", ""))}},
		"died making":      {list: []Call{died(did("NodeStageVolume", "/s", ""))}, want: []string{"NodeStageVolume v /s"}},
		"died undoing":     {list: []Call{did("NodeStageVolume", "/s", ""), died(did("NodeUnstageVolume", "/s", ""))}, want: []string{"NodeStageVolume v /s"}},
		"undone and again": {list: []Call{did("NodeStageVolume", "/s", ""), did("NodeUnstageVolume", "/s", ""), did("NodeStageVolume", "/s", "")}, want: []string{"NodeStageVolume v /s"}},
		"another node":     {list: []Call{did("ControllerPublishVolume", "", "n"), did("ControllerUnpublishVolume", "", "m")}, want: []string{"ControllerPublishVolume v n"}},
	} {
		if diff := cmp.Diff(tt.want, Leftovers(tt.list)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
