package local

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func TestCredentials(t *testing.T) {
	secrets := func(pairs ...string) map[string]flex.Secret {
		m := map[string]flex.Secret{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = flex.NewSecret([]byte(pairs[i+1]))
		}
		return m
	}
	for name, tt := range map[string]struct {
		fsType  string
		options []string
		secrets map[string]flex.Secret
		want    []string          // options that remain
		files   map[string]string // by option
		text    string            // of an error
	}{
		"nothing":                     {fsType: "nfs", options: []string{"vers=4", "retry=2"}, want: []string{"vers=4", "retry=2"}},
		"secrets of no use":           {fsType: "nfs", options: []string{"vers=4"}, secrets: secrets("password", "hunter2"), want: []string{"vers=4", "retry=0"}},
		"cifs":                        {fsType: "cifs", options: []string{"vers=3"}, secrets: secrets("username", "anna", "password", "hunter2,=x", "domain", "D"), want: []string{"vers=3"}, files: map[string]string{"credentials": "username=anna\npassword=hunter2,=x\ndomain=D\n"}},
		"cifs, option and password":   {fsType: "smb3", options: []string{"username=anna"}, secrets: secrets("password", "hunter2"), want: []string{"username=anna"}, files: map[string]string{"credentials": "password=hunter2\n"}},
		"cifs, user":                  {fsType: "cifs", options: []string{"user=anna"}, secrets: secrets("password", "hunter2"), want: []string{"username=anna"}, files: map[string]string{"credentials": "password=hunter2\n"}},
		"cifs, the same user":         {fsType: "cifs", options: []string{"user=anna", "username=anna"}, secrets: secrets("username", "anna", "password", "hunter2"), want: []string{"username=anna", "username=anna"}, files: map[string]string{"credentials": "username=anna\npassword=hunter2\n"}},
		"cifs, another user":          {fsType: "cifs", options: []string{"user=anna"}, secrets: secrets("username", "hunter2", "password", "x"), text: `the volume's Secret has another username than mountOptions; remove one of them`},
		"cifs, two users":             {fsType: "cifs", options: []string{"user=anna", "username=bert"}, text: "mountOptions: user and username name two users; remove one of them"},
		"cifs, empty password":        {fsType: "cifs", secrets: secrets("username", "anna", "password", ""), files: map[string]string{"credentials": "username=anna\npassword=\n"}},
		"cifs, blanks":                {fsType: "cifs", secrets: secrets("username", "anna", "password", " hunter2 "), files: map[string]string{"credentials": "username=anna\npassword= hunter2 \n"}},
		"cifs, UTF-8":                 {fsType: "cifs", secrets: secrets("username", "anna", "password", "hünter2"), want: []string{"iocharset=utf8"}, files: map[string]string{"credentials": "username=anna\npassword=hünter2\n"}},
		"cifs, UTF-8, other charset":  {fsType: "cifs", options: []string{"iocharset=cp850"}, secrets: secrets("username", "anna", "password", "hünter2"), want: []string{"iocharset=cp850"}, files: map[string]string{"credentials": "username=anna\npassword=hünter2\n"}},
		"cifs, no password":           {fsType: "cifs", secrets: secrets("username", "anna", "domain", "D"), text: `the volume's Secret lacks the key "password"; mount.cifs would not use the others without it`},
		"cifs, no username":           {fsType: "cifs", secrets: secrets("password", "hunter2"), text: `lacks the key "username"; mount.cifs would log in as root`},
		"cifs, other keys":            {fsType: "cifs", secrets: secrets("user", "anna", "pass", "hunter2"), text: "has none of the keys that a cifs volume reads: username, password, domain"},
		"cifs, guest":                 {fsType: "cifs", options: []string{"guest"}, want: []string{"guest"}},
		"cifs, guest and credentials": {fsType: "cifs", options: []string{"guest"}, secrets: secrets("username", "anna"), text: "has credentials, and the mount option guest asks for none"},
		"cifs, own file":              {fsType: "cifs", options: []string{"credentials=$(secretFile:file)", "ro"}, secrets: secrets("file", "password=hunter2\n", "password", "x"), want: []string{"ro"}, files: map[string]string{"credentials": "password=hunter2\n"}},
		"cifs, cred":                  {fsType: "cifs", options: []string{"cred=$(secretFile:file)"}, secrets: secrets("file", "password=hunter2\n", "password", "x"), files: map[string]string{"cred": "password=hunter2\n"}},
		"cifs, newline":               {fsType: "cifs", secrets: secrets("password", "hunter2\n"), text: `the key "password" of the volume's Secret contains a line break, which mount.cifs cannot read; was it made with a newline at its end?`},
		"cifs, injection":             {fsType: "cifs", secrets: secrets("password", "x", "username", "hunter2\nuid=0"), text: `the key "username" of the volume's Secret contains a line break`},
		"ceph":                        {fsType: "ceph", options: []string{"name=admin"}, secrets: secrets("key", "hunter2=="), want: []string{"name=admin"}, files: map[string]string{"secretfile": "hunter2=="}},
		"ceph, own file":              {fsType: "ceph", options: []string{"secretfile=$(secretFile:file)"}, secrets: secrets("file", "hunter2=="), files: map[string]string{"secretfile": "hunter2=="}},
		"ceph, no key":                {fsType: "ceph", options: []string{"name=admin"}, secrets: secrets("username", "hunter2"), text: `a ceph volume needs the key "key" in its Secret; without it mount.ceph would take the node's own keyring`},
		"fuse":                        {fsType: "fuse.s3fs", options: []string{"passwd_file=$(secretFile:aws)", "url=x"}, secrets: secrets("aws", "id:hunter2"), want: []string{"url=x"}, files: map[string]string{"passwd_file": "id:hunter2"}},
		"two files":                   {fsType: "fuse.x", options: []string{"a=$(secretFile:1)", "b=$(secretFile:2)"}, secrets: secrets("1", "hunter2", "2", ""), files: map[string]string{"a": "hunter2", "b": ""}},
		"binary":                      {fsType: "fuse.x", options: []string{"a=$(secretFile:1)"}, secrets: secrets("1", "\x00\xffhunter2\n"), files: map[string]string{"a": "\x00\xffhunter2\n"}},
		"key missing":                 {fsType: "fuse.x", options: []string{"a=$(secretFile:1)"}, secrets: secrets("2", "hunter2"), text: `mountOptions: a asks for the key "1", which the volume's Secret does not have`},
		"no Secret":                   {fsType: "fuse.x", options: []string{"a=$(secretFile:1)"}, text: "set secretRef to a Secret of the type that is the driver's name"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &Volume{Kind: kindSource, FSType: tt.fsType, MountOptions: tt.options}
			options, files, err := credentials(v, tt.secrets)
			options = append(options, defaults(v, options, files)...)
			if tt.text != "" {
				if err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "hunter2") || flex.CodeOf(err) != flex.CodeInvalidArgument {
					t.Errorf("error %v (%s), want %q", err, flex.CodeOf(err), tt.text)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(options, tt.want) {
				t.Errorf("options %q, want %q", options, tt.want)
			}
			got := map[string]string{}
			for option, content := range files {
				got[option] = string(content)
			}
			if tt.files == nil {
				tt.files = map[string]string{}
			}
			if diff := cmp.Diff(tt.files, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if strings.Contains(strings.Join(options, ",")+strings.Join(slices.Collect(maps.Keys(files)), ","), "hunter2") {
				t.Errorf("a secret is among the options %q", options)
			}
		})
	}
}

// mount.nfs and mount.cifs say an errno; the answer says what the server did. A mount
// with a server that refuses took the whole deadline and named nothing (storage.md,
// fault 2). The texts are those of nfs-utils 2.6.2 and cifs-utils 7.0.
func TestExplainServer(t *testing.T) {
	late := flex.Errorf(flex.CodeDeadlineExceeded, "still in progress after 1m50s")
	for text, tt := range map[string]struct {
		err  error
		want string
	}{
		"NFS refuses":   {errors.New("exit status 32: mount.nfs: Connection refused"), "the server refuses the connection"},
		"NFSv3 refuses": {errors.New("exit status 32: mount.nfs: requested NFS version or transport protocol is not supported"), "the server refuses the connection"},
		"SMB refuses":   {errors.New("exit status 32: mount error(111): could not connect to 10.0.0.1"), "the server refuses the connection"},
		"NFS is silent": {errors.New("exit status 32: mount.nfs: Connection timed out"), "the server does not answer"},
		"SMB is silent": {errors.New("exit status 32: mount error(110): Connection timed out"), "the server does not answer"},
		"SMB is down":   {errors.New("exit status 32: mount error(112): Host is down"), "the server does not answer"},
		"no route":      {errors.New("exit status 32: mount.nfs: No route to host"), "the server does not answer"},
		"the deadline":  {fmt.Errorf("/bin/mount was ended: %w", late), "the server does not answer"},
		"SMB user":      {errors.New("exit status 32: mount error(13): Permission denied"), "check username, password and domain"},
		"SMB share":     {errors.New("exit status 32: mount error(2): No such file or directory"), "no such share or directory"},
		"no export":     {errors.New("mount.nfs: access denied by server while mounting"), ""},
	} {
		t.Run(text, func(t *testing.T) {
			err := &mounter.Error{Op: "mount", Source: "10.0.0.1:/export", Target: "/mnt", FSType: "nfs", Err: tt.err}
			got := explainServer(err)
			if !strings.Contains(got.Error(), "10.0.0.1:/export") || !strings.Contains(got.Error(), tt.want) || flex.CodeOf(got) != flex.CodeOf(err) {
				t.Errorf("%v (%s), want %q", got, flex.CodeOf(got), tt.want)
			}
			if tt.want == "" && got.Error() != err.Error() {
				t.Errorf("something was added: %v", got)
			}
		})
	}
	if explainServer(nil) != nil {
		t.Error("nil is an error")
	}
}
