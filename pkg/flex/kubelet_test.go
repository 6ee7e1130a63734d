package flex_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// answer is what the kubelet makes of a driver's output.
type answer struct {
	Status       string          `json:"status"`
	Message      string          `json:"message"`
	Device       string          `json:"device"`
	VolumeName   string          `json:"volumeName"`
	Attached     bool            `json:"attached"`
	Capabilities map[string]bool `json:"capabilities"`
}

// kubeletReads reads the merged output as handleCmdResponse does (Kubernetes
// v1.37.1, pkg/volume/flexvolume/driver-call.go:257): the whole of it has to be
// one JSON value. Beyond that it must be an object and end in one newline.
func kubeletReads(t *testing.T, output []byte) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal(output, &a); err != nil {
		t.Fatalf("the kubelet cannot read %q: %v", output, err)
	}
	if err := checkOutput(output); err != nil {
		t.Fatalf("%v: %q", err, output)
	}
	return a
}

func checkOutput(output []byte) error {
	n := len(output)
	switch {
	case n > 4096:
		return fmt.Errorf("%d bytes are more than a pipe takes at once", n)
	case n < 2 || output[0] != '{' || output[n-2] != '}' || output[n-1] != '\n':
		return fmt.Errorf("not one object and a newline")
	}
	return nil
}
