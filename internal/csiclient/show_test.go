package csiclient_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestShow(t *testing.T) {
	r := csiclient.NodePublishRequest(csivol.PublishRequest{
		Handle:         "true",
		PublishContext: map[string]string{"device": "/dev/sdb"},
		TargetPath:     "/var/lib/kubelet/pods/1/mount",
		StagingPath:    "/staging/canary",
		Capability: csivol.Capability{
			FSType:     "cifs",
			AccessMode: csivol.ReadWriteOncePod,
			MountFlags: []string{"noatime", "password=hunter2", "username=canary"},
			MountGroup: "2000",
		},
		ReadOnly: true,
		Secrets:  map[string]flex.Secret{"user": flex.NewSecret([]byte("hunter2"))},
		Context: map[string]string{
			"share": "//server/share",
			"csi.storage.k8s.io/serviceAccount.tokens": `{"aud": "hunter2"}`,
			"accountKey": "hunter2",
		},
	}, csivol.Features{NodeSingleWriter: true})
	redact := func(s string) string { return strings.ReplaceAll(s, "canary", "[redacted]") }
	got, err := yaml.Marshal(csiclient.Show(r, redact))
	if err != nil {
		t.Fatal(err)
	}
	const want = `volume_id: "true"
publish_context:
    device: /dev/sdb
staging_target_path: /staging/[redacted]
target_path: /var/lib/kubelet/pods/1/mount
volume_capability:
    mount:
        fs_type: cifs
        mount_flags:
            - noatime
            - password=[redacted]
            - username=[redacted]
        volume_mount_group: "2000"
    access_mode:
        mode: SINGLE_NODE_SINGLE_WRITER
readonly: true
secrets:
    user: '[redacted]'
volume_context:
    accountKey: '[redacted]'
    csi.storage.k8s.io/serviceAccount.tokens: '[redacted]'
    share: //server/share
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	expand, err := yaml.Marshal(csiclient.Show(csiclient.ControllerExpandRequest(csivol.ExpandRequest{Handle: "v", Size: 1 << 40}, csivol.Features{}), redact))
	if err != nil || !strings.Contains(string(expand), "required_bytes: 1099511627776\n") {
		t.Errorf("%v\n%s", err, expand)
	}
}
