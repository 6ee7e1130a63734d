package allow

import (
	"slices"
	"strings"
	"testing"
)

func TestMountRefuses(t *testing.T) {
	for _, tt := range []struct{ fsType, option string }{
		{"ext4", "journal_path=/dev/sda"},
		{"ext4", "journal_dev=8"},
		{"ext4", "errors=panic"},
		{"ext4", "usrjquota=x"},
		{"ext4", "loop"},
		{"ext4", "offset=1"},
		{"ext4", "sizelimit=1"},
		{"ext4", "bind"},
		{"ext4", "rbind"},
		{"ext4", "move"},
		{"ext4", "remount"},
		{"ext4", "shared"},
		{"ext4", "make-shared"},
		{"ext4", "x-mount.mkdir"},
		{"ext4", "X-mount.idmap=b:0:1:1"},
		{"ext4", "user"},
		{"ext4", "users"},
		{"ext4", "comment=x"},
		{"ext4", "dev"},
		{"ext4", "suid"},
		{"ext4", "nofail"},
		{"ext4", "verity.hashdevice=x"},
		{"ext4", "sb=1"},
		{"ext4", "acl=1"},
		{"ext4", "ACL"},
		{"ext4", ""},
		{"ext4", `data="journal"`},
		{"ext4", `commit="5,journal_path=x"`},
		{"ext4", `commit=5\054loop`},
		{"ext4", "commit=5 "},
		{"ext4", " acl"},
		{"ext4", "commit=-5"},
		{"ext4", "commit=5,bind"},
		{"ext4", "commit=+5"},
		{"ext4", "commit=5\x00"},
		{"ext4", `context="u:r:t:s0",bind`},
		{"ext4", `context="a:b:c,dev,suid"`}, // mount options in a label
		{"ext4", `context="a:b:c:s0,suid"`},
		{"ext4", `context="a:b:c:s0:c1,dev"`},
		{"ext4", `context="a:b:c:s0-s1:c1,c2.c"`},
		{"ext4", `context=a,b:r:t`},
		{"ext4", `context=u:r:"t`},
		{"ext4", `context=""`},
		{"ext4", `context="u:r:t`},
		{"ext4", "context=/etc"},
		{"ext4", "fscontext=u:r:t"},
		{"ext4", `context="`},
		{"ext4", `context=u:r:t\`},
		{"xfs", "logdev=/dev/sda"},
		{"xfs", "rtdev=/dev/sda"},
		{"btrfs", "device=/dev/sda"},
		{"btrfs", "subvol=/x"},
		{"btrfs", "subvol=../x"},
		{"btrfs", "fatal_errors=panic"},
		{"btrfs", "rescue=all"},
		{AnyDisk, "device=/dev/sda"},
		{AnyDisk, "loop"},
		{Directory, "discard"},
		{Directory, "bind"},
		{Directory, "dev"},
		{Memory, "size=1g"},
		{Memory, "nr_inodes=0"},
		{Memory, "mpol=bind:0"},
		{Memory, "mode=0888"},
		{"nfs", "mountprog=1"},
		{"nfs", "nfsprog=1"},
		{"nfs", "addr=1.2.3.4"},
		{"nfs", "bg"},
		{"nfs", "bind"},
		{"nfs", "helper=sh"},
		{"nfs", "uhelper=sh"},
		{"nfs", "vers=5"},
		{"nfs", "sloppy"},
		{"nfs", "mountaddr=-x"},
		{"nfs", "nosuid=1"},
		{"cifs", "credentials=/etc/shadow"},
		{"cifs", "cred=shadow"},
		{"cifs", "password=x"},
		{"cifs", "password=$(secretFile:x)"},
		{"cifs", "pass=x"},
		{"cifs", "cruid=0"},
		{"cifs", "multiuser"},
		{"cifs", "username=a%b"},
		{"cifs", "prefixpath=/x"},
		{"cifs", "credentials=$(secretFile:)"},
		{"cifs", "credentials=$(secretFile:a)b"},
		{"cifs", "credentials=$(secretFile:a,b)"},
		{"cifs", "credentials=$(secretFile:a/b)"},
		{"cifs", "credentials"},
		{"ceph", "secret=x"},
		{"ceph", "secretfile=/etc/ceph/key"},
		{"ceph", "conf=/etc/x"},
		{"ceph", "keyring=/x"},
		{"ceph", "snapdirname=a/b"},
		{"glusterfs", "log-file=/etc/x"},
		{"glusterfs", "xlator-option=*dht.x=y"},
		{"glusterfs", "dump-fuse=/x"},
		{"glusterfs", "process-name=x"},
		{"glusterfs", "backup-volfile-servers=a:/x"},
		{"9p", "trans=unix"},
		{"9p", "trans=fd"},
		{"9p", "rfdno=3"},
		{"9p", "aname=/etc"},
		{"virtiofs", "bind"},
		{"lustre", "skpath=/x"},
		{"lustre", "mgsname=/x"},
		{"fuse.x", "fsname=/dev/sda"},
		{"fuse.x", "subtype=x"},
		{"fuse.x", "setuid=root"},
		{"fuse.x", "drop_privileges"},
		{"fuse.x", "fd=3"},
		{"fuse.x", "dev"},
		{"fuse.x", "suid"},
		{"fuse.x", "modules=iconv"},
		{"fuse.x", "subdir=/x"},
		{"fuse.x", "blkdev"},
		{"fuse.x", "config=/x"},
		{"fuse.x", "anything=$(secretFile:x)"},
		{"fuse.s3fs", "passwd_file=/etc/x"},
		{"fuse.s3fs", "url=file:///etc"},
		{"fuse.s3fs", "url=http://a/../b"},
		{"fuse.s3fs", "use_cache=/x"},
		{"fuse.s3fs", "logfile=/x"},
		{"fuse.s3fs", "credlib=/x"},
		{"fuse.sshfs", "ssh_command=x"},
		{"fuse.sshfs", "ProxyCommand=x"},
		{"fuse.sshfs", "IdentityFile=/root/.ssh/id"},
		{"fuse.sshfs", "sftp_server=/x"},
		{"fuse.sshfs", "directport=1"},
		{"fuse.sshfs", "slave"},
		{"fuse.sshfs", "LocalCommand=x"},
		{"fuse.sshfs", "F=/x"},
		{"fuse", "allow_other"},
		{"overlay", "ro"},
		{"ntfs", "ro"},
		{"proc", "nosuid"},
	} {
		if faults := Mount(tt.fsType, []string{tt.option}); len(faults) == 0 {
			t.Errorf("%s takes %q", tt.fsType, tt.option)
		}
	}
	if len(Mount("ext4", slices.Repeat([]string{"acl"}, maxOptions+1))) == 0 {
		t.Error("any number of options is taken")
	}
}

func TestMountTakes(t *testing.T) {
	for fsType, options := range map[string]string{
		"ext4": `noatime nosuid nodev noexec discard data=journal commit=30 barrier=0 barrier errors=remount-ro context="u:r:t:s0:c1,c2" context=system_u:object_r:container_file_t:s0 context="u:r:t:s0-s15:c0.c1023,c7" lazytime _netdev defaults stripe=16`,
		"xfs":  "uquota allocsize=64k logbufs=8 logbsize=256k nouuid inode64", "btrfs": "compress=zstd:3 compress discard=async subvol=data subvolid=256 nodatacow",
		AnyDisk: "noatime discard uquota compress", Directory: "ro nosuid nodev noexec noatime", Memory: "mode=0750 uid=1000 gid=1000 nr_inodes=10k noswap",
		"nfs":  "vers=4.1 nfsvers=3 proto=tcp hard timeo=600 retrans=2 rsize=1048576 nconnect=8 sec=krb5p nolock actimeo=30 lookupcache=pos noresvport port=2049",
		"cifs": "vers=3.0 uid=1000 gid=1000 file_mode=0644 dir_mode=0777 credentials=$(secretFile:cred) username=anna domain=CORP seal nobrl mfsymlinks serverino iocharset=utf8 cache=strict actimeo=30",
		"ceph": "name=admin fs=data secretfile=$(secretFile:key) mount_timeout=1 noshare rsize=16m ms_mode=secure", "glusterfs": "backup-volfile-servers=a:b.c log-level=WARNING direct-io-mode=disable",
		"9p": "trans=virtio version=9p2000.L msize=512k cache=mmap access=any", "virtiofs": "dax", "lustre": "flock",
		"fuse.x": "allow_other default_permissions uid=1000 umask=0022 passwd_file=$(secretFile:k)", "fuse.s3fs": "url=https://minio.example.com:9000 use_path_request_style passwd_file=$(secretFile:k)", "fuse.sshfs": "reconnect ServerAliveInterval=15 IdentityFile=$(secretFile:id) port=22",
	} {
		if faults := Mount(fsType, strings.Fields(options)); len(faults) > 0 {
			t.Errorf("%s: %q", fsType, faults)
		}
	}
}

// What a person reads names the option, not what may be a secret.
func TestFaultsTellNoValues(t *testing.T) {
	faults := Mount("cifs", []string{"password=hunter2", "credentials=hunter2", "/hunter2", "nonsense=hunter2"})
	faults = append(faults, Source("nfs", "hunter2"))
	text := strings.Join(faults, "\n")
	if strings.Contains(text, "hunter2") {
		t.Errorf("a value is in %s", text)
	}
	for _, want := range []string{"password", "credentials", "option 3", "nonsense", "docs/volumes.md"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestSource(t *testing.T) {
	good := map[string][]string{
		"nfs": {"server:/export", "10.0.0.1:/", "[fe80::1]:/a/b", "server:/größe/a:b", "server:/my export"}, "nfs4": {"s.example.com:/x"},
		"cifs": {"//server/share", "//10.0.0.1/c$/sub/dir", "//[::1]/x", "//h/Team Data", "//h/Team Data/Q1 2026"}, "smb3": {"//s/x y"},
		"ceph": {"mon:/", "a:6789,b:6789,[::1]:6789:/path", "user@fsid.fs=/path", "user@.fs=/"}, "glusterfs": {"server:/vol", "a,b:vol", "s:/vol/sub"},
		"9p": {"tag", "10.0.0.1"}, "virtiofs": {"tag-1"}, "lustre": {"10.0.0.1@tcp:/fs", "a@tcp,b@o2ib:c@tcp:/fs/sub"},
		"fuse.sshfs": {"me@host:/path", "host:"}, "fuse.s3fs": {"bucket", "bucket:/prefix"}, "fuse.x": {"fake", "bucket:prefix", "a@b:1"},
	}
	for fsType, sources := range good {
		for _, s := range sources {
			if fault := Source(fsType, s); fault != "" {
				t.Errorf("%s %s: %s", fsType, s, fault)
			}
		}
	}
	bad := []string{"", "/", "/etc", "//", "-o", "-o exec", "evil#x", "a#b:/x", "/var/lib/kubelet/pods/x/evil#x", "../x", "a/../b", "etc/shadow", "var/lib:/x", "server:/x ", "//h/x ", " //h/x", "server:/x, y", "server:/a,b", "server:/a\tb", "server:/a\nb", `server:/a"b`, `server:/a'b`, `server:/a\040b`, "server:/$(id)", "server:/`id`", "server:/a;b", "server:/a|b", "server:/../x", "-x:/y", ":/x", "a b:/x", "//-x/y", "///x", "//s", "//s/", "//s//x", "\x00", "server:/\x7f", strings.Repeat("a", 2000)}
	for _, fsType := range append(SourceTypes(), "fuse.x", "fuse.sshfs", "fuse", "ext4", "overlay", "none", "") {
		for _, s := range bad {
			if Source(fsType, s) == "" {
				t.Errorf("%s takes %q", fsType, s)
			}
		}
	}
	// Each part of the source of a union is a directory of the node.
	for _, s := range []string{"x:/etc", "x:y:/etc", "x:etc/ssh", "x://etc", "https://host/path", "x:..", "x:y/../z", "/a:/etc", "x:/"} {
		if Source("fuse.mergerfs", s) == "" {
			t.Errorf("a union takes %q", s)
		}
	}
}

func TestSourceTypes(t *testing.T) {
	if got := strings.Join(SourceTypes(), " "); got != "9p ceph cifs glusterfs lustre nfs nfs4 smb3 virtiofs" {
		t.Errorf("the types are %s", got)
	}
	for _, s := range []string{"fuse", "fuseblk", "fuse.", "fuse..", "fuse.-x", "fuse.a/b", "fuse.a.b", "fuse.a#b", "fuse.X", "ext4", "", "tmpfs", "directory", "overlay", "nfs,cifs", "nonfs", "ntfs", "cpuset", "ecryptfs", "none", "proc", "-t", "fuse." + strings.Repeat("x", 40)} {
		if IsSourceType(s) {
			t.Errorf("%q is a type of a source", s)
		}
	}
	if !IsSourceType("fuse.s3fs") || !IsSourceType("nfs") {
		t.Error("nfs or fuse.s3fs is no type of a source")
	}
}

// Every line of every list can be read: a grammar with a fault would refuse
// all values, or take any.
func TestLists(t *testing.T) {
	lists := map[string]list{"every mount": mountEvery, "attributes": mountAttributes}
	for name, l := range mountLists() {
		lists["mount "+name] = l
	}
	for where, l := range lists {
		for line := range strings.Lines(string(l)) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, ": ") {
				t.Errorf("%s: %q cannot be read", where, line)
			}
		}
		for names, grammar := range l.lines() {
			if len(names) == 0 || len(samples(grammar)) == 0 {
				t.Errorf("%s: no value is known for %q of %q", where, grammar, names)
			}
			for _, s := range samples(grammar) {
				value, given := strings.CutPrefix(s, "=")
				if !matches(grammar, value, given) {
					t.Errorf("%s: %q does not take %q", where, grammar, s)
				}
			}
			for _, s := range []string{"=/x", "=a/b", "=-x", "= ", "=", "=a b", "=\x00", `="`, `=\`, "=$(id)", "=;", "=#", "=,", "=1,", "=x,device=/y"} {
				value, given := strings.CutPrefix(s, "=")
				if matches(grammar, value, given) {
					t.Errorf("%s: %q takes %q", where, grammar, s)
				}
			}
		}
	}
}

// samples are values that a grammar takes; = before one stands for its being given.
func samples(grammar string) []string {
	fixed := map[string]string{"octal": "=0755", "name": "=a", "host": "=a.b", "hosts": "=a:b", "url": "=https://a:1", "context": "=u:r:t:s0", "secret": "=$(secretFile:k)"}
	switch low, high, isRange := strings.Cut(grammar, ".."); {
	case grammar == "-":
		return []string{""}
	case grammar[0] == '[':
		return append(samples(strings.Trim(grammar, "[]")), "")
	case fixed[grammar] != "":
		return []string{fixed[grammar]}
	case isRange:
		return []string{"=" + low, "=" + high}
	}
	var out []string
	for word := range strings.SplitSeq(grammar, "|") {
		out = append(out, "="+word)
	}
	return out
}

func FuzzMount(f *testing.F) {
	for fsType, l := range mountLists() {
		for names, g := range l.lines() {
			for _, s := range samples(g) {
				f.Add(fsType, names[0]+s)
			}
		}
	}
	f.Add("nfs", `vers="4,bind"`)
	f.Add("fuse.x", `context="a:b:c",setuid=root`)
	f.Add("cifs", `credentials=$(secretFile:a),x`)
	f.Fuzz(func(t *testing.T, fsType, option string) {
		if len(Mount(fsType, []string{option})) > 0 {
			return
		}
		name, value, given := strings.Cut(option, "=")
		grammar := mountList(fsType).grammar(name)
		if grammar == "" || !matches(grammar, value, given) {
			t.Fatalf("%s takes %q", fsType, option)
		}
		forbidden := "\\'`#;|&<>* \t\n\x00"
		if grammar != "url" {
			forbidden += "/"
		}
		if grammar != "context" {
			forbidden += `",`
		}
		if grammar != "secret" {
			forbidden += "$()"
		}
		if strings.ContainsAny(option, forbidden) {
			t.Errorf("%s takes %q", fsType, option)
		}
		if strings.Contains(option, ",") && (value[0] != '"' || strings.Count(value, `"`) != 2) {
			t.Errorf("%s takes a second option in %q", fsType, option)
		}
	})
}

func FuzzSource(f *testing.F) {
	for _, s := range []string{"server:/x", "//s/x", "a:1,b:2:/x", "u@f.s=/", "tag", "https://h/x", "-o", "p#x", "/etc"} {
		for _, fsType := range append(SourceTypes(), "fuse.x") {
			f.Add(fsType, s)
		}
	}
	f.Fuzz(func(t *testing.T, fsType, source string) {
		if Source(fsType, source) != "" {
			return
		}
		if !IsSourceType(fsType) || source == "" || source[0] == '-' || strings.ContainsAny(source, "#\\\"'`;|&<>*?() \t\r\n\x00") {
			t.Errorf("%s takes %q", fsType, source)
		}
		if local := source[0] == '/' && !strings.HasPrefix(source, "//"); local || slices.Contains(strings.Split(source, "/"), "..") {
			t.Errorf("%s takes the path %q", fsType, source)
		}
	})
}
