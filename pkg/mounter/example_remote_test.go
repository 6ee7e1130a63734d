package mounter_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// An SMB share with the password of the volume's Secret: mount.cifs gets the option
// credentials=FILE, and the file is in memory.
func ExampleMounter_MountRemote() {
	_ = func(ctx context.Context, call *flex.Call, target *mounter.Target) error {
		password := call.Options.Secrets["password"].Reveal()
		if len(password) == 0 || bytes.ContainsAny(password, "\r\n") { // a second line could set any option
			return flex.Errorf(flex.CodeInvalidArgument, "the volume's Secret needs the key password, with one line")
		}
		m := mounter.Mounter{Log: flex.Log(ctx)}
		return m.MountRemote(ctx, mounter.Remote{
			Source:      "//server/share",
			FSType:      "cifs",
			ReadOnly:    call.Options.ReadOnly,
			Credentials: map[string][]byte{"credentials": fmt.Appendf(nil, "username=me\npassword=%s\n", password)},
		}, target)
	}
}
