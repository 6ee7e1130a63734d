package local

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A mount option with the value $(secretFile:KEY) gets the path of a file with the
// value of KEY in the volume's Secret. Only root can read the file. It exists in memory
// only, and only until the mount is done.
const (
	secretFilePrefix  = "$(secretFile:"
	secretFileSuffix  = ")"
	secretFileExample = secretFilePrefix + "KEY" + secretFileSuffix
)

func isSecretFile(option string) bool {
	_, value, _ := strings.Cut(option, "=")
	return strings.HasPrefix(value, secretFilePrefix) && strings.HasSuffix(value, secretFileSuffix)
}

// credentials removes the options that name secret files from options. It returns
// the content of the files by option, with those that the type of filesystem reads by
// default.
func credentials(v *Volume, secrets map[string]flex.Secret) (options []string, files map[string][]byte, err error) {
	files = map[string][]byte{}
	for _, o := range v.MountOptions {
		if !isSecretFile(o) {
			options = append(options, o)
			continue
		}
		name, value, _ := strings.Cut(o, "=")
		key := allow.SecretKey(value)
		secret, ok := secrets[key]
		if !ok {
			return nil, nil, flex.Errorf(flex.CodeInvalidArgument, "mountOptions: %s asks for the key %q, which the volume's Secret does not have%s", name, key, noSecret(secrets))
		}
		files[name] = secret.Reveal()
	}
	if err := implied(v.FSType, options, secrets, files); err != nil {
		return nil, nil, err
	}
	return options, files, nil
}

func noSecret(secrets map[string]flex.Secret) string {
	if len(secrets) > 0 {
		return ""
	}
	return " (the volume has none: set secretRef to a Secret of the type that is the driver's name)"
}

// implied adds what mount.cifs(8) and mount.ceph(8) read from a file.
func implied(fsType string, options []string, secrets map[string]flex.Secret, files map[string][]byte) error {
	has := func(option string) bool {
		return files[option] != nil || slices.ContainsFunc(options, func(o string) bool { return o == option || strings.HasPrefix(o, option+"=") })
	}
	switch fsType {
	case "cifs", "smb3":
		if has("credentials") || has("cred") {
			return nil
		}
		user, err := oneUser(options)
		if err != nil {
			return err
		}
		content, err := cifsCredentials(secrets, user, has)
		if len(content) > 0 {
			files["credentials"] = content
		}
		return err
	case "ceph":
		key := secrets["key"].Reveal()
		switch {
		case has("secretfile"):
		case len(key) == 0:
			return flex.Errorf(flex.CodeInvalidArgument, "a ceph volume needs the key %q in its Secret%s; without it mount.ceph would take the node's own keyring", "key", noSecret(secrets))
		default:
			files["secretfile"] = key
		}
	}
	return nil
}

// oneUser returns the user that options name. It turns user=NAME into username=NAME: mount(8)
// keeps the former to itself where the kernel mounts.
func oneUser(options []string) (user string, err error) {
	for i, o := range options {
		name, value, _ := strings.Cut(o, "=")
		if name != "user" && name != "username" {
			continue
		}
		if user != "" && user != value {
			return "", flex.Errorf(flex.CodeInvalidArgument, "mountOptions: user and username name two users; remove one of them")
		}
		user, options[i] = value, "username="+value
	}
	return user, nil
}

// cifsCredentials uses all of a Secret or refuses it: with a part of it, mount.cifs would
// ask the server as another user, and the server would name another reason.
func cifsCredentials(secrets map[string]flex.Secret, user string, has func(option string) bool) ([]byte, error) {
	refuse := func(format string, args ...any) ([]byte, error) {
		return nil, flex.Errorf(flex.CodeInvalidArgument, "the volume's Secret "+format, args...)
	}
	var b strings.Builder
	for _, key := range [...]string{"username", "password", "domain"} {
		secret, ok := secrets[key]
		value := string(secret.Reveal())
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, flex.Errorf(flex.CodeInvalidArgument, "the key %q of the volume's Secret contains a line break, which mount.cifs cannot read; was it made with a newline at its end?", key)
		}
		if ok {
			fmt.Fprintf(&b, "%s=%s\n", key, value)
		}
	}
	username, named := secrets["username"]
	_, password := secrets["password"]
	switch {
	case len(secrets) == 0:
	case has("guest") && b.Len() > 0:
		return refuse("has credentials, and the mount option guest asks for none; remove one of them")
	case has("guest"):
	case b.Len() == 0:
		return refuse("has none of the keys that a cifs volume reads: username, password, domain; or name its file with the mount option credentials=%s", secretFileExample)
	case !password:
		return refuse("lacks the key %q; mount.cifs would not use the others without it", "password")
	case named && user != "" && string(username.Reveal()) != user:
		return refuse("has another username than mountOptions; remove one of them")
	case !named && user == "":
		return refuse("lacks the key %q; mount.cifs would log in as root", "username")
	}
	return []byte(b.String()), nil
}
