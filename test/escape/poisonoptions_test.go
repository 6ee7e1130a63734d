package escape

import "strings"

// spoilMkfs gives the option that was removed: with it an image took gigabytes of the
// node's disk at once, or a name that the node looks for.
func (m *maker) spoilMkfs(a *attempt) {
	a.options["mkfsOptions"] = pick(m, "-d etc", "-L cloudimg-rootfs", "-E nodiscard,lazy_itable_init=0 -i 2048 -I 1024 -J size=1024", "-O quota,project", "-J device=/dev/loop0", "--rootdir etc", "-d file,name=etc/shadow")
}

// odd gives a volume options that are allowed and seldom seen, in numbers: what is let
// pass must do no harm either.
func (m *maker) odd(a *attempt) {
	if a.options["medium"] != "" {
		a.options["mountOptions"] = m.some(4, ",", []string{"nr_inodes=1", "nr_inodes=1g", "mode=07777", "uid=4294967294", "gid=0", "inode64", "noswap", "exec", "lazytime", "ro"})
	}
	if m.often(50) && a.options["image"]+a.options["device"] != "" {
		a.options["mountOptions"] = m.some(5, ",", []string{"commit=0", "stripe=1048576", "dax=inode", "data=journal", "journal_async_commit", "resuid=0", "usrquota", "prjquota", "noload", "norecovery", "init_itable=0", "max_dir_size_kb=0", "inode_readahead_blks=1", "lazytime", "dirsync", "_netdev", "nosymfollow", "barrier=0", "errors=continue", "ro"})
	}
}

func (m *maker) spoilMountOptions(a *attempt) {
	w := m.w
	word := pick(m, hostileMounts()...)
	if m.often(35) {
		word = pick(m, "credentials", "cred", "secretfile", "keyfile", "journal_path", "journal_dev", "logdev", "rtdev", "device", "lowerdir", "upperdir", "workdir", "helper", "uhelper", "x-mount.subdir", "X-mount.subdir", "X-mount.idmap",
			"x-mount.mkdir", "fd", "mountpoint", "ssh_command", "ProxyCommand", "IdentityFile", "config", "source", "context", "fscontext", "usrjquota", "grpjquota", "subvol", "verity.hashdevice", "verity.roothashfile", "loop", "target", "conf", "name", "comment", "mpol", "cachetag", "secret", "trans", "rootcontext", "LOOP", "src", "dest") +
			pick(m, "=", "=", "==", " = ", "=\"", "") +
			pick(m, w.host+"/shadow", w.host+"/dir", "/etc/shadow", w.hostDevice, "/dev/loop0", w.scratch+"/bin/evil", "../../host", "/", "$(secretFile:password)", "$(secretFile:../x)", "$(secretFile:)", "x", "", w.images+"/"+theirs+"/theirs.img") +
			pick(m, "", "", "\"")
	}
	old := a.options["mountOptions"]
	a.options["mountOptions"] = strings.Trim(pick(m, word, old+","+word, word+","+old, word), ",")
}

// hostileMounts are options of mount(8), of filesystems and of their helpers that name
// files, devices and programs, or make something else of the mount.
func hostileMounts() []string {
	return []string{
		"bind", "rbind", "move", "loop", "loop=/dev/loop0", "remount", "remount,bind", "make-shared", "shared", "rshared", "private", "slave", "unbindable", "rbind,ro", "BIND", "bind=1", "bi\\nd", `"bind"`, `x="a,bind"`, `x="a",bind`, "noatime bind", "noatime\tbind", "noatime;bind",
		"helper=evil", "uhelper=evil", "x-mount.mkdir", "X-mount.mkdir=0777", "X-mount.subdir=..", "x-mount.auto-fstypes=evil", "X-mount.owner=0", "X-mount.noloop", "X-mount.idmap=b:0:1000:1", "x-systemd.automount", "X-fstrim", "offset=4096", "sizelimit=1", "encryption=aes",
		"verity.hashdevice=/x", "verity.roothash=1", "dev", "suid", "exec", "user", "users", "owner", "user=root", "user=a%b", "password=hunter2-in-options", "pass=x", "group", "_netdev", "nofail", "defaults", "sync", "nosymfollow", "iversion", "silent", "lazytime",
		"journal_path=/dev/loop0", "journal_dev=0x701", "logdev=/dev/loop0", "rtdev=/dev/loop0", "device=/dev/loop0", "subvolid=5", "subvol=/../..", "degraded", "rescue=all", "clear_cache", "usrjquota=../x", "jqfmt=vfsv1", "test_dummy_encryption", "sb=131072", "noload", "norecovery", "inlinecrypt", "resgid=0", "debug", "errors=panic", "errors=continue", "dax", "dax=always", "prjquota", "init_itable=0", "max_dir_size_kb=1", "data=writeback", "abort", "data_err=abort", "nobarrier", "mb_optimize_scan=1", "stripe=1", "fsid=1",
		"size=8E", "size=100%", "size=9999G", "size=8Ei,mode=4777", "mode=4777", "uid=0", "nr_inodes=0", "nr_blocks=0", "nr_blocks=99999999999", "huge=always", "mpol=bind:0", "inode32", "noswap", "usrquota", "usrquota_block_hardlimit=1", "mode=07777", "casefold", "huge=deny",
		"lowerdir=/etc", "upperdir=/tmp,workdir=/tmp", "fd=3", "fd=3,rootmode=40000,user_id=0", "allow_other", "allow_other,default_permissions", "fsname=x", "subtype=evil", "blkdev", "nonempty", "auto_unmount", "setuid=root", "dev,suid,exec", "context=\"a:b:c\"", "context=a,bind", "fscontext=u:r:t:s0",
		"sec=krb5i", "sec=krb5,cruid=0", "multiuser", "guest", "credentials=x", "cred=../x", "domain=x", "prefixpath=..", "netbiosname=x", "ip=127.0.0.1", "servern=x", "unc=//a/b", "srcaddr=1", "port=1", "addr=127.0.0.1", "clientaddr=127.0.0.1", "mountport=1", "mounthost=127.0.0.1", "mountaddr=127.0.0.1", "xprtsec=tls", "fsc", "fsc=x", "lookupcache=none", "local_lock=all", "migration", "nconnect=16", "upcall_target=mount", "vers=99", "vers=", "nfsvers=4/../x", "trunkdiscovery", "write=wait", "cert_serial=1", "posix", "idsfromsid", "backupuid=0", "snapshot=1", "nodfs", "symlink=native", "reparse=wsl", "nativesocket", "symlinkroot=/",
		"-o bind", "-obind", "--bind", "-t evil", "--", ",", ",,", "=", "=x", "a=b=c", "\"", "\"\"", "ro,rw", "rw", "ro=1", "source=/etc", "source=x", "none", "\\054bind", "x%2cbind", "noatime\\,bind", "trans=fd,rfdno=0,wfdno=1", "trans=unix", "access=any", "cache=loose", "msize=1",
	}
}

func (m *maker) spoilType(a *attempt) {
	a.fsType = pick(m, "fuse", "fuse.evil", "fuse.sshfs", "fuseblk", "fuseblk.evil", "fuse3", "ntfs-3g", "ntfs", "overlay", "tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "bpf", "cgroup", "cgroup2", "cpuset", "ecryptfs", "autofs", "squashfs", "erofs", "virtiofs", "ext2", "ext4dev", "vfat", "iso9660",
		"none", "auto", "bind", "nfs4", "smb3", "9p", "ceph", "glusterfs", "binfmt_misc", "configfs", "fusectl", "hugetlbfs", "mqueue", "pstore", "evil", "ext4,xfs", "noext4", "no", "-o", "-t", "--bind", "../evil", "ext4/../../x", m.w.scratch+"/bin/evil", "ext4 -d etc", "ext4\x00", "EXT4", "Ext4", ".", "..", "ext4.evil", "nfs.evil", "cifs.evil", "nfs,loop", "lustre", "davfs", "s3fs", "rclone", "zfs", "swap", "LABEL", "fuse.", "fuse.mount.nfs", "fuse."+strings.Repeat("x", 300), "fuse.sh", "fuse.evil#x", "minix", "cramfs", "hfs", "ext4\n", " ext4")
	if m.often(50) && a.options["source"] != "" {
		m.spoilSource(a)
	}
}

func (m *maker) spoilSource(a *attempt) {
	w := m.w
	evil := w.scratch + "/bin/evil"
	a.options["source"] = pick(m, evil+"#x", evil+"#", evil, "evil#x", "evil", "sh#-c id", "sshfs#host:", "-o bind", "--bind", "-t", w.host+"/dir", w.host, w.host+"/host.img", w.hostDevice, "/etc", "/", "none", "proc", "tmpfs", "overlay", "LABEL=x", "UUID=x", "PARTUUID=x",
		"//server/share\" -o bind", "server:/export -o bind", " server:/x", "server:/x ", "user:pass@server:/x", "smb://u:p@s/x", "//u:p@s/x", "file:///etc", "localhost:/etc", "127.0.0.1:"+w.host, "[::1]:/", "unix:/run/docker.sock", "server:/x,server2:/y", "server:", ":/x", "/dev/fuse", "/dev/loop0", "\\\\server\\share", "//server/../..", "$(id):/x", "server:/`id`", "server:/x#y", "@"+w.host, strings.Repeat("s", 4000)+":/x", "//server/share,bind", "server:/$(secretFile:password)", w.scratch+"/image.img", "memory", "a:/../..", "/proc/self/fd/3", "systemd-1", "ssh:-oProxyCommand="+evil+":/")
}

func (m *maker) spoilCredentials(a *attempt) {
	a.secrets = map[string]string{"password": secretOf(m), "username": pick(m, "u", "u\ncredentials=/etc/shadow", "u,bind", "-o"), "key": secretOf(m), "domain": pick(m, "", "d\npassword=x", "d")}
	a.options["mountOptions"] = pick(m, "credentials", "cred", "secretfile", "keyfile", "password", "x", "bind", "source", "helper", "device", "identity_file", "-o") + "=" +
		pick(m, "$(secretFile:password)", "$(secretFile:key)", "$(secretFile:none)", "$(secretFile:password", "$(secretFile:pass,bind)", "$(secretfile:key)", "/etc/shadow", m.w.host+"/shadow", "$(secretFile:../../etc)")
}
