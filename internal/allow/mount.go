package allow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/guard"
)

// What is mounted if it is no filesystem by itself: the types that Mount takes
// besides those of the lists.
const (
	AnyDisk   = ""          // a disk with the filesystem that is there
	Directory = "directory" // a directory of the node
	Memory    = "tmpfs"
)

// The mount options. Left out on purpose, besides all that name a file, a
// device or a program of the node, or another helper:
//
//   - dev and suid: they are how a disk is mounted anyway, as the kubelet does
//     it, and for others they would lift what the helper or the program does
//     by itself (mount.fuse(8)).
//   - errors=panic and fatal_errors: what is on the volume could stop the node.
//   - x-*, X-mount.*, user, owner, comment: they are for fstab, and mount(8)
//     makes directories, other mounts and other owners of them.
//   - nofail: mount(8) then calls a failure success.
//   - cruid and multiuser of cifs: they use other users' tickets and keyrings.
const mountAttributes list = `
defaults exec noatime nodev nodiratime noexec nosuid nosymfollow relatime ro rw strictatime diratime atime: -
`

const mountEvery list = `
_netdev dirsync lazytime sync: -
context: context
`

const mountMemory list = `
gid uid: 0..4294967294
inode64 noswap: -
mode: octal
nr_inodes: 1..1g
`

const mountExt list = `
acl noacl auto_da_alloc noauto_da_alloc block_validity noblock_validity bsddf minixdf: -
delalloc nodelalloc dioread_lock dioread_nolock discard nodiscard grpid nogrpid bsdgroups sysvgroups: -
grpquota prjquota quota noquota usrquota i_version journal_async_commit journal_checksum nojournal_checksum: -
nobarrier nombcache noinit_itable norecovery noload user_xattr nouser_xattr: -
barrier: [0|1]
commit: 0..3600
data: ordered|writeback|journal
dax: [always|never|inode]
errors: continue|remount-ro
init_itable: [0..1000]
inode_readahead_blks: 0..1048576
journal_ioprio: 0..7
max_batch_time min_batch_time: 0..10000000
max_dir_size_kb: 0..4194304
resgid resuid: 0..65535
stripe: 0..1048576
`

const mountXFS list = `
attr2 noattr2 discard nodiscard filestreams grpid nogrpid bsdgroups sysvgroups ikeep noikeep inode32 inode64: -
largeio nolargeio lifetime noalign norecovery nouuid swalloc wsync: -
gquota grpquota gqnoenforce pquota prjquota pqnoenforce quota noquota qnoenforce uquota usrquota uqnoenforce: -
allocsize: 4k..1g
dax: [always|never|inode]
logbsize: 16k..256k
logbufs: 2..8
sunit swidth: 0..1048576
`

const mountBtrfs list = `
acl noacl autodefrag noautodefrag barrier nobarrier datacow nodatacow datasum nodatasum flushoncommit noflushoncommit: -
nodiscard nospace_cache skip_balance ssd nossd ssd_spread nossd_spread treelog notreelog user_subvol_rm_allowed: -
commit: 1..3600
compress compress-force: [zlib|lzo|zstd|no|none|zlib:1|zlib:2|zlib:3|zlib:4|zlib:5|zlib:6|zlib:7|zlib:8|zlib:9|zstd:1|zstd:2|zstd:3|zstd:4|zstd:5|zstd:6|zstd:7|zstd:8|zstd:9|zstd:10|zstd:11|zstd:12|zstd:13|zstd:14|zstd:15]
discard: [sync|async]
max_inline: 0..64k
metadata_ratio: 0..1000
space_cache: [v1|v2]
subvol: name
subvolid: 5..1099511627775
thread_pool: 1..64
`

const mountNFS list = `
ac noac acl noacl cto nocto fg fsc nofsc hard soft softerr softreval nosoftreval intr nointr lock nolock migration nomigration: -
rdirplus nordirplus resvport noresvport sharecache nosharecache tcp udp rdma trunkdiscovery notrunkdiscovery: -
acdirmax acdirmin acregmax acregmin actimeo: 0..86400
clientaddr mountaddr: host
local_lock: all|flock|posix|none
lookupcache: all|none|pos|positive
max_connect nconnect: 1..16
minorversion: 0..2
mountport port: 0..65535
mountproto proto: tcp|udp|rdma|tcp6|udp6|rdma6
mountvers: 1|2|3
namlen: 1..255
retrans: 0..1000
retry: 0..10000
rsize wsize bsize: 512..4m
sec: sys|none|krb5|krb5i|krb5p
timeo: 1..60000
vers nfsvers: 2|3|4|4.0|4.1|4.2
write: lazy|eager|wait
xprtsec: none|tls|mtls
`

const mountCIFS list = `
acl noacl cifsacl nocifsacl dynperm nodynperm forceuid noforceuid forcegid noforcegid forcemandatorylock fsc: -
guest hard soft idsfromsid ignorecase nocase intr nointr mapchars nomapchars mapposix mfsymlinks: -
modefromsid multichannel nomultichannel nobrl nolock nodfs nohandlecache nosharesock nostrictsync strictsync: -
perm noperm persistenthandles nopersistenthandles posix noposix unix nounix linux nolinux rdma resilienthandles: -
noresilienthandles seal serverino noserverino setuids nosetuids sfu sign tcpnodelay noblocksend user_xattr nouser_xattr: -
acdirmax acregmax actimeo closetimeo: 0..1073741823
cache: strict|none|loose|ro|singleclient
credentials cred: secret
dir_mode file_mode: octal
domain dom workgroup user username netbiosname servern: name
echo_interval: 1..600
gid uid: 0..4294967294
handletimeout: 0..960000
iocharset: utf8|ascii|iso8859-1|iso8859-15|cp437|cp850|cp1252|default
ip addr: host
max_channels: 1..16
max_credits: 20..65000
port: 0..65535
rsize wsize bsize: 512..16m
sec: none|krb5|krb5i|ntlm|ntlmi|ntlmv2|ntlmv2i|ntlmssp|ntlmsspi
vers: default|1.0|2.0|2.1|3|3.0|3.02|3.0.2|3.1.1|3.11
`

const mountCeph list = `
acl noacl asyncreaddir noasyncreaddir copyfrom nocopyfrom crc nocrc dcache nodcache dirstat nodirstat ino32 noino32: -
quotadf noquotadf rbytes norbytes share noshare wsync nowsync: -
caps_max: 0..10000000
caps_wanted_delay_max caps_wanted_delay_min mount_timeout osd_idle_ttl osdkeepalive: 0..86400
fs mds_namespace fsid name: name
ip: host
ms_mode: legacy|crc|secure|prefer-crc|prefer-secure
rasize rsize wsize: 0..64m
readdir_max_bytes readdir_max_entries: 0..64m
recover_session: no|clean
secretfile: secret
`

const mountGluster list = `
acl auto-invalidation enable-ino32 fopen-keep-cache mem-accounting resolve-gids selinux: -
attribute-timeout entry-timeout gid-timeout negative-timeout: 0..86400
background-qlen congestion-threshold: 1..65535
backup-volfile-servers: hosts
backupvolfile-server: host
direct-io-mode: enable|disable|yes|no|on|off
fetch-attempts: 1..100
log-level: CRITICAL|ERROR|WARNING|INFO|DEBUG|NONE
lru-limit: 0..10000000
server-port: 0..65535
transport: tcp|rdma
use-readdirp: yes|no
`

const mount9P list = `
ignoreqv noextend nodevmap noxattr posixacl privport: -
access: user|any|client
cache: none|loose|mmap|readahead|fscache
dfltgid dfltuid: 0..4294967294
locktimeout: 1..3600
msize: 4k..16m
port: 0..65535
trans: virtio|tcp|rdma|xen
uname: name
version: 9p2000|9p2000.u|9p2000.L
`

const mountLustre list = `
flock localflock noflock lazystatfs nolazystatfs user_xattr nouser_xattr: -
`

// The options of libfuse that a program of any kind understands in one way, and
// the names under which programs take a file of credentials and nothing else.
// setuid, drop_privileges, fsname, subtype and fd are mount.fuse's own.
const mountFUSE list = `
allow_other auto_cache default_permissions direct_io kernel_cache nonempty: -
attr_timeout entry_timeout negative_timeout: 0..86400
gid uid: 0..4294967294
max_read: 4k..1m
passwd_file credentials IdentityFile: secret
umask: octal
`

const mountS3FS list = `
use_path_request_style: -
endpoint: name
url: url
`

const mountSSHFS list = `
compression: yes|no
port: 1..65535
reconnect: -
ServerAliveCountMax ServerAliveInterval: 0..3600
`

// mountLists are the options of each type besides those of every mount.
func mountLists() map[string]list {
	return map[string]list{
		"ext4": mountExt, "ext3": mountExt, "xfs": mountXFS, "btrfs": mountBtrfs,
		AnyDisk: mountExt + mountXFS + mountBtrfs, Directory: "", Memory: mountMemory,
		"nfs": mountNFS, "nfs4": mountNFS, "cifs": mountCIFS, "smb3": mountCIFS, "ceph": mountCeph, "glusterfs": mountGluster,
		"9p": mount9P, "virtiofs": "dax: [always|never|inode]", "lustre": mountLustre,
		"fuse.s3fs": mountFUSE + mountS3FS, "fuse.sshfs": mountFUSE + mountSSHFS,
	}
}

// mountList returns what a type takes, its own options first.
func mountList(fsType string) list {
	own, ok := mountLists()[fsType]
	switch {
	case !ok && isFUSE(fsType):
		own = mountFUSE
	case !ok:
		return ""
	}
	if fsType == Directory {
		return mountAttributes
	}
	return own + mountEvery + mountAttributes
}

// maxOptions is more than any mount needs.
const maxOptions = 64

// Mount checks the options of a mount. The value of an option is in no fault,
// and neither is a name that is none: either may be a secret.
func Mount(fsType string, options []string) (faults []string) {
	l := mountList(fsType)
	if len(options) > maxOptions {
		return []string{fmt.Sprintf("mountOptions: there are %d, and at most %d are allowed", len(options), maxOptions)}
	}
	var unknown []string
	for i, o := range options {
		name, value, given := strings.Cut(o, "=")
		switch grammar := l.grammar(name); {
		case grammar == "" && guard.SensitiveKey(name) && value != "":
			faults = append(faults, fmt.Sprintf("mountOptions: %s would show in the node's process list; put it into the volume's Secret (docs/volumes.md)", name))
		case grammar == "" && isOptionName(name):
			unknown = append(unknown, name)
		case grammar == "":
			unknown = append(unknown, fmt.Sprintf("option %d", i+1))
		case !matches(grammar, value, given):
			faults = append(faults, fmt.Sprintf("mountOptions: the value of %s is not allowed; it takes %s", name, strings.ReplaceAll(describe(grammar), "`", "")))
		}
	}
	if len(unknown) > 0 {
		faults = append([]string{fmt.Sprintf("mountOptions: not allowed for %s: %s; %s", whatIs(fsType), strings.Join(unknown, ", "), whatAllowed(l))}, faults...)
	}
	return faults
}

// whatAllowed names the options of a list, or where a long one is to be read:
// an event of Kubernetes has room for 1024 characters.
func whatAllowed(l list) string {
	names := l.names()
	if len(names) > 30 {
		return "docs/reference/options.md lists what is allowed"
	}
	return "allowed are " + strings.Join(names, ", ") + " (docs/volumes.md)"
}

func whatIs(fsType string) string {
	switch fsType {
	case AnyDisk:
		return "a disk without fsType"
	case Directory:
		return "a directory"
	case Memory:
		return "memory"
	}
	return fsType
}

// isOptionName reports whether s can be repeated as the name of an option.
func isOptionName(s string) bool { return len(s) < 32 && only(strings.TrimLeft(s, "_"), "_.-") }

// DiskTypes are the filesystems that a disk or an image may have.
func DiskTypes() []string { return []string{"ext4", "xfs", "btrfs", "ext3"} }

// SourceTypes are the types that a volume with source may have, besides
// fuse.PROGRAM. Which of them a node allows is for its configuration to say.
func SourceTypes() []string {
	disks := append(DiskTypes(), AnyDisk, Directory, Memory)
	types := slices.Collect(maps.Keys(mountLists()))
	types = slices.DeleteFunc(types, func(t string) bool { return slices.Contains(disks, t) || isFUSE(t) })
	slices.Sort(types)
	return types
}

// IsSourceType reports whether s is one of SourceTypes, or fuse.PROGRAM.
func IsSourceType(s string) bool { return isFUSE(s) || slices.Contains(SourceTypes(), s) }

// isFUSE reports whether s is fuse.PROGRAM. fuse alone is none: mount.fuse(8)
// then takes the program from the source (PROGRAM#SOURCE).
func isFUSE(s string) bool {
	program, ok := strings.CutPrefix(s, "fuse.")
	return ok && len(program) <= 32 && strings.ToLower(program) == program && only(program, "_-")
}
