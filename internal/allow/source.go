package allow

import (
	"slices"
	"strings"
	"unicode"
)

// A sourceForm is how a type of filesystem writes its source.
type sourceForm struct {
	text  string
	match func(string) bool
}

func formOf(fsType string) sourceForm {
	switch fsType {
	case "nfs", "nfs4":
		return sourceForm{"SERVER:/PATH" + pathCharacters, isNFS}
	case "cifs", "smb3":
		return sourceForm{"//SERVER/SHARE or //SERVER/SHARE/PATH" + pathCharacters, isCIFS}
	case "ceph":
		return sourceForm{"MONITOR[:PORT],…:/PATH or NAME@FSID.FILESYSTEM=/PATH", isCeph}
	case "glusterfs":
		return sourceForm{"SERVER:/VOLUME or SERVER:/VOLUME/PATH", isGluster}
	case "lustre":
		return sourceForm{"SERVER@NETWORK:/FILESYSTEM", isLustre}
	case "9p", "virtiofs":
		return sourceForm{"a tag or a server's name", func(s string) bool { return only(s, "._:-") }}
	}
	switch {
	case fsType == "fuse.s3fs" || fsType == "fuse.sshfs":
		return sourceForm{"letters, digits and . _ ~ + @ % : / -, beginning with a letter or digit, with a : before the first /, without ..", isFUSESource}
	case isFUSE(fsType):
		return sourceForm{"letters, digits and . _ ~ + @ % : -, beginning with a letter or digit, without / and ..", isFUSEName}
	}
	return sourceForm{"nothing", func(string) bool { return false }}
}

// maxSource is more than any source needs.
const maxSource = 1024

// Source checks the source of a volume. No form begins with a dash or is a path
// of the node; a source is not repeated, since it may be a secret.
func Source(fsType, source string) (fault string) {
	form := formOf(fsType)
	if len(source) > maxSource || !form.match(source) {
		return "source: " + fsType + " takes " + form.text + " (docs/volumes.md)"
	}
	return ""
}

// isNFS: the server is the part before the first ":/", as nfs(5) has it.
func isNFS(s string) bool {
	server, path, ok := cutPath(s, ":")
	return ok && isHost(server) && isPathWithBlanks(path)
}

func isCIFS(s string) bool {
	rest, ok := strings.CutPrefix(s, "//")
	server, share, _ := strings.Cut(rest, "/")
	return ok && isHost(server) && share != "" && share[0] != '/' && isPathWithBlanks("/"+share)
}

func isCeph(s string) bool {
	if before, path, ok := cutPath(s, "="); ok {
		user, cluster, at := strings.Cut(before, "@")
		return at && isName(user, 63) && only(strings.TrimLeft(cluster, "."), "._-") && isPath(path)
	}
	monitors, path, ok := cutPath(s, ":")
	return ok && all(strings.Split(monitors, ","), isHostPort) && isPath(path)
}

func isGluster(s string) bool {
	servers, volume, ok := strings.Cut(s, ":")
	volume = strings.TrimPrefix(volume, "/")
	return ok && all(strings.Split(servers, ","), isHost) && volume != "" && isPath("/"+volume)
}

func isLustre(s string) bool {
	servers, path, ok := cutPath(s, ":")
	return ok && only(servers, ".,@:_-") && path != "/" && isPath(path)
}

// isFUSESource: no #, before which mount.fuse(8) would take a program's name, and no
// path of the node: a program may change its directory to / before it opens a relative one.
func isFUSESource(s string) bool {
	name, _, _ := strings.Cut(s, ":")
	return !strings.Contains(name, "/") && only(s, "._~+@%:/-") && !slices.Contains(strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == ':' }), "..")
}

// isFUSEName has no path at all: what is remote:path to one program is two directories of the
// node to another, such as mergerfs.
func isFUSEName(s string) bool { return !strings.Contains(s, "/") && isFUSESource(s) }

// cutPath splits s before the first slash, and takes the separator away that is
// before it.
func cutPath(s, separator string) (before, path string, ok bool) {
	before, rest, found := strings.Cut(s, separator+"/")
	return before, "/" + rest, found && !strings.Contains(before, "/")
}

// pathCharacters is what isPathWithBlanks takes.
const pathCharacters = ", with letters, digits, blanks inside and . _ ~ + @ % = : $ - in its path"

// isPathWithBlanks is isPath for types with a mount program that is no shell script.
func isPathWithBlanks(s string) bool {
	return strings.TrimSpace(s) == s && isPath(strings.ReplaceAll(s, " ", ""))
}

// isPath takes absolute paths on a server. They have letters of any language,
// and no characters that a list of options, a shell or a mount table reads in a
// way of its own.
func isPath(s string) bool {
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._~+@%=:$-", r) {
			return false
		}
	}
	return strings.HasPrefix(s, "/") && !slices.Contains(strings.Split(s, "/"), "..")
}
