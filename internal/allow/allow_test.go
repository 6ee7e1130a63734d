package allow

import (
	"slices"
	"strings"
	"testing"
)

// Each is an attack on the node by the author of a pod. Those of mkfs copied
// /etc/shadow into the volume, or made files in the node's root directory.
func TestMkfsRefuses(t *testing.T) {
	for _, tt := range []struct{ fsType, words string }{
		{"ext4", "-Fd etc"},
		{"ext4", "-d etc"},
		{"ext4", "-detc"},
		{"ext4", "-qdetc"},
		{"ext4", "-q -d etc"},
		{"ext4", "-z NAME"},
		{"ext4", "-zNAME"},
		{"ext4", "-l blocks"},
		{"ext4", "-J device=LABEL=x"},
		{"ext4", "-J size=4,device=x"},
		{"ext4", "-O journal_dev"},
		{"ext4", "-O ^has_journal,journal_dev"},
		{"ext4", "-E offset=512"},
		{"ext4", "-Eoffset=512"},
		{"ext4", "-E nodiscard,offset=512"},
		{"ext4", "-E mount_opts=journal_path=x"},
		{"ext4", "-E assume_storage_prezeroed"},
		{"ext4", "-E root_owner=root"},
		{"ext4", "-M etc"},
		{"ext4", "-F"},
		{"ext4", "-FF"},
		{"ext4", "-S"},
		{"ext4", "-n"},
		{"ext4", "-nq"},
		{"ext4", "-t ext2"},
		{"ext4", "-T ../x"},
		{"ext4", "-e panic"},
		{"ext4", "-U random"},
		{"ext4", "-c"},
		{"ext4", "-V"},
		{"ext4", "-L"},
		{"ext4", "-L -F"},
		{"ext4", "-L -d etc"},
		{"ext4", "-L ../x"},
		{"ext4", "-L a/b"},
		{"ext4", "-L 12345678901234567"},
		{"ext4", "-b -4096"},
		{"ext4", "-m 51"},
		{"ext4", "-m 1e9"},
		{"ext4", "-m NaN"},
		{"ext4", "-m 0x1"},
		{"ext4", "-i 1"},
		{"ext4", "-i 99999999999999999999"},
		{"ext4", "-G 1g"},
		{"ext4", "--"},
		{"ext4", "-"},
		{"ext4", "-q --"},
		{"ext4", "other"},
		{"ext4", "-q other"},
		{"ext4", "100"},
		{"ext4", "--dir=etc"},
		{"ext4", "-E=x"},
		{"ext4", "-O ^^64bit"},
		{"ext4", "-O 64bit,"},
		{"ext4", "-O ,"},
		{"ext4", "-O none"},
		{"ext4", "-E stride"},
		{"ext4", "-E discard=1"},
		{"ext3", "-Fd etc"},
		{"xfs", "-p proto"},
		{"xfs", "-pproto"},
		{"xfs", "-qpproto"},
		{"xfs", "-d name=x,file"},
		{"xfs", "-dfile,name=x"},
		{"xfs", "-d agcount=4,name=x"},
		{"xfs", "-d size=1g"},
		{"xfs", "-l logdev=x"},
		{"xfs", "-l internal=0"},
		{"xfs", "-l internal,logdev=x"},
		{"xfs", "-r rtdev=x"},
		{"xfs", "-c options=x"},
		{"xfs", "-m uuid=x"},
		{"xfs", "-N"},
		{"xfs", "-f"},
		{"xfs", "-V"},
		{"xfs", "-C"},
		{"xfs", "-L 1234567890123"},
		{"xfs", "-d"},
		{"xfs", "-d agcount"},
		{"xfs", "-d agcount="},
		{"btrfs", "--rootdir etc"},
		{"btrfs", "--rootd etc"},
		{"btrfs", "--r=etc"},
		{"btrfs", "-r etc"},
		{"btrfs", "-retc"},
		{"btrfs", "-Kretc"},
		{"btrfs", "-K -r etc"},
		{"btrfs", "--subvol x"},
		{"btrfs", "--quie"},
		{"btrfs", "--quiet=1"},
		{"btrfs", "--label"},
		{"btrfs", "-b 1g"},
		{"btrfs", "--byte-count=1g"},
		{"btrfs", "-U x"},
		{"btrfs", "-f"},
		{"btrfs", "-O list-all"},
		{"btrfs", "--help"},
		{"btrfs", "--csum=crc32"},
		{"btrfs", "-d raid1"},
		{"btrfs", "--shrink"},
		{"ext2", "-q"},
		{"", "-q"},
		{"vfat", "-q"},
		{"ext4", strings.Repeat("-q ", 65)},
	} {
		if got, faults := Mkfs(tt.fsType, strings.Fields(tt.words)); len(faults) == 0 {
			t.Errorf("mkfs.%s %s is taken: %q", tt.fsType, tt.words, got)
		}
	}
}

func TestMkfsTakes(t *testing.T) {
	for _, tt := range []struct{ fsType, words, want string }{
		{"ext4", "", ""},
		{"ext4", "-m0 -L data", "-m 0 -L data"},
		{"ext3", "-m 0.5 -i 8192 -I256 -N 100000", "-m 0.5 -i 8192 -I 256 -N 100000"},
		{"ext4", "-O ^has_journal,64bit -E lazy_itable_init=0,lazy_journal_init,nodiscard,stride=16,stripe_width=64", "-O ^has_journal,64bit -E lazy_itable_init=0,lazy_journal_init,nodiscard,stride=16,stripe_width=64"},
		{"ext4", "-E root_owner=1000:1000 -J size=64 -T largefile -b 4096 -e remount-ro -q -j -C 64K -G 16", "-E root_owner=1000:1000 -J size=64 -T largefile -b 4096 -e remount-ro -q -j -C 64K -G 16"},
		{"xfs", "-b size=4096 -d agcount=4,su=64k,sw=4 -i size=512,maxpct=25 -l size=64m,version=2 -m crc=1,reflink=0 -n ftype=1 -s size=4k -K -L x -q", "-b size=4096 -d agcount=4,su=64k,sw=4 -i size=512,maxpct=25 -l size=64m,version=2 -m crc=1,reflink=0 -n ftype=1 -s size=4k -K -L x -q"},
		{"btrfs", "--data=single -mdup --csum xxhash -n16k -O ^no-holes,quota -R free-space-tree --label=data -M -K -q", "--data single -m dup --csum xxhash -n 16k -O ^no-holes,quota -R free-space-tree --label data -M -K -q"},
	} {
		got, faults := Mkfs(tt.fsType, strings.Fields(tt.words))
		if strings.Join(got, " ") != tt.want || len(faults) > 0 {
			t.Errorf("mkfs.%s %s: %q, %q", tt.fsType, tt.words, got, faults)
		}
	}
}

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
		"ext4": `noatime nosuid nodev noexec discard data=journal commit=30 barrier=0 barrier errors=remount-ro context="u:r:t:s0:c1,c2" context=system_u:object_r:container_file_t:s0 lazytime _netdev defaults stripe=16`,
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
	_, faults := Mkfs("ext4", []string{"hunter2", "-L", "hunter2/", "-Ohunter2", "--hunter2=hunter2", "-zhunter2"})
	faults = append(faults, Mount("cifs", []string{"password=hunter2", "credentials=hunter2", "/hunter2", "nonsense=hunter2"})...)
	faults = append(faults, Source("nfs", "hunter2"))
	text := strings.ReplaceAll(strings.Join(faults, "\n"), "--hunter2,", "") // a name, not a value
	if strings.Contains(text, "hunter2") {
		t.Errorf("a value is in %s", text)
	}
	for _, want := range []string{"word 1", "-L", "-O", "password", "credentials", "option 3", "nonsense", "docs/volumes.md"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestSource(t *testing.T) {
	good := map[string][]string{
		"nfs": {"server:/export", "10.0.0.1:/", "[fe80::1]:/a/b", "server:/größe/a:b"}, "nfs4": {"s.example.com:/x"},
		"cifs": {"//server/share", "//10.0.0.1/c$/sub/dir", "//[::1]/x"}, "smb3": {"//s/x"},
		"ceph": {"mon:/", "a:6789,b:6789,[::1]:6789:/path", "user@fsid.fs=/path", "user@.fs=/"}, "glusterfs": {"server:/vol", "a,b:vol", "s:/vol/sub"},
		"9p": {"tag", "10.0.0.1"}, "virtiofs": {"tag-1"}, "lustre": {"10.0.0.1@tcp:/fs", "a@tcp,b@o2ib:c@tcp:/fs/sub"},
		"fuse.sshfs": {"me@host:/path", "host:"}, "fuse.s3fs": {"bucket", "bucket:/prefix"}, "fuse.x": {"https://host/path", "fake"},
	}
	for fsType, sources := range good {
		for _, s := range sources {
			if fault := Source(fsType, s); fault != "" {
				t.Errorf("%s %s: %s", fsType, s, fault)
			}
		}
	}
	bad := []string{"", "/", "/etc", "//", "-o", "-o exec", "evil#x", "a#b:/x", "/var/lib/kubelet/pods/x/evil#x", "../x", "a/../b", "server:/x y", "server:/a,b", "server:/a\tb", "server:/a\nb", `server:/a"b`, `server:/a'b`, `server:/a\040b`, "server:/$(id)", "server:/`id`", "server:/a;b", "server:/a|b", "server:/../x", "-x:/y", ":/x", "a b:/x", "//-x/y", "///x", "//s", "//s/", "//s//x", "\x00", "server:/\x7f", strings.Repeat("a", 2000)}
	for _, fsType := range append(SourceTypes(), "fuse.x", "fuse.sshfs", "fuse", "ext4", "overlay", "none", "") {
		for _, s := range bad {
			if Source(fsType, s) == "" {
				t.Errorf("%s takes %q", fsType, s)
			}
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
	for name, l := range mkfsLists() {
		lists["mkfs "+name] = l
	}
	for name, l := range mountLists() {
		lists["mount "+name] = l
	}
	for _, name := range namedLists {
		lists[name] = named(name)
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

var namedLists = []string{"ext4 -E", "ext4 -J", "ext4 -O", "xfs -b", "xfs -d", "xfs -i", "xfs -l", "xfs -m", "xfs -n", "xfs -s", "btrfs -O", "btrfs -R"}

// samples are values that a grammar takes; = before one stands for its being given.
func samples(grammar string) []string {
	kind, argument, _ := strings.Cut(grammar, " ")
	fixed := map[string]string{"octal": "=0755", "percent": "=0.5", "owner": "=0:0", "name": "=a", "label": "=a", "host": "=a.b", "hosts": "=a:b", "url": "=https://a:1", "context": "=u:r:t:s0", "secret": "=$(secretFile:k)"}
	switch low, high, isRange := strings.Cut(grammar, ".."); {
	case grammar == "-":
		return []string{""}
	case grammar[0] == '[':
		return append(samples(strings.Trim(grammar, "[]")), "")
	case fixed[kind] != "":
		return []string{fixed[kind]}
	case isRange:
		return []string{"=" + low, "=" + high}
	case kind == "features":
		names := named(argument).names()
		return []string{"=" + strings.Join(names, ",^")}
	case kind == "keys":
		var out []string
		for names, g := range named(argument).lines() {
			for _, s := range samples(g) {
				out = append(out, "="+names[0]+s)
			}
		}
		return out
	}
	var out []string
	for word := range strings.SplitSeq(grammar, "|") {
		out = append(out, "="+word)
	}
	return out
}

func FuzzMkfs(f *testing.F) {
	var spellings []string
	for _, l := range []list{mkfsExt, mkfsXFS, mkfsBtrfs} {
		for names, g := range l.lines() {
			for _, s := range samples(g) {
				spellings = append(spellings, names[0]+strings.Replace(s, "=", " ", 1), names[0]+s, names[0]+strings.TrimPrefix(s, "="))
			}
		}
	}
	spellings = append(spellings, "-Fd etc", "--rootd etc", "-z x", "-E offset=1", "--", "-d name=x", "-J device=/dev/sda")
	for i, s := range spellings {
		f.Add(s + " " + spellings[(i*7+3)%len(spellings)])
	}
	f.Fuzz(func(t *testing.T, text string) {
		for fsType, l := range mkfsLists() {
			words := strings.Fields(text)
			got, faults := Mkfs(fsType, words)
			if len(faults) > 0 {
				continue
			}
			joined := strings.Join(got, " ")
			if strings.ContainsAny(joined, "/\\\"'$`#;|&<>*?\x00") {
				t.Errorf("mkfs.%s %q is taken", fsType, text)
			}
			// Nothing is in the result that was not in the words, and no value
			// can be read as an option.
			if strings.ReplaceAll(joined, " ", "") != strings.ReplaceAll(strings.Join(words, ""), "=", "") && strings.ReplaceAll(strings.ReplaceAll(joined, " ", ""), "=", "") != strings.ReplaceAll(strings.Join(words, ""), "=", "") {
				t.Errorf("mkfs.%s %q became %q", fsType, text, joined)
			}
			for i := 0; i < len(got); i++ {
				grammar := l.grammar(got[i])
				switch {
				case grammar == "":
					t.Fatalf("mkfs.%s %q: %q is not on the list", fsType, text, got[i])
				case grammar != "-":
					i++
					if i == len(got) || got[i] == "" || got[i][0] == '-' || !matches(grammar, got[i], true) {
						t.Fatalf("mkfs.%s %q: the value of %q", fsType, text, got[i-1])
					}
				}
			}
		}
	})
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
