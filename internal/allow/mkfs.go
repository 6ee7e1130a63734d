package allow

import (
	"fmt"
	"slices"
	"strings"
)

// The options of mkfs. Left out on purpose, besides all that read or write
// another file (mke2fs -d, -l, -z, -J device; mkfs.xfs -c, -p, -d name, -l
// logdev, -r; mkfs.btrfs -r) and all that make no filesystem (-n, -N, -S, -V):
//
//   - force (-F, -f): the disk is empty, and the second -F of mke2fs(8), after
//     that of mount-utils, formats a device that is mounted.
//   - UUIDs: a volume with the UUID of another filesystem is found in its place.
//   - sizes and offsets of the filesystem: it fills the volume.
//   - -e panic: what is on the volume could stop the node.
//   - assume_storage_prezeroed: it would show what was on the disk before.
const mkfsExt list = `
-b: 1024|2048|4096|8192|16384|32768|65536
-C: 2k..256m
-e: continue|remount-ro
-E: keys ext4 -E
-G: 1..65536
-i: 1k..64m
-I: 128|256|512|1024|2048|4096
-j: -
-J: keys ext4 -J
-L: label 16
-m: percent
-N: 16..4294967295
-O: features ext4 -O
-q: -
-T: small|big|huge|news|largefile|largefile4|default
`

const mkfsExtExtended list = `
discard nodiscard: -
encoding: utf8|utf8-12.1.0
encoding_flags: strict|nostrict
lazy_itable_init lazy_journal_init packed_meta_blocks: [0|1]
mmp_update_interval: 0..300
num_backup_sb: 0|1|2
orphan_file_size: 4k..512m
quotatype: usrquota|grpquota|prjquota|usrquota:grpquota|usrquota:grpquota:prjquota
resize: 1..1099511627775
root_owner: owner
stride stripe_width stripe-width: 1..1048576
`

const mkfsExtJournal list = `
size: 1..40960
fast_commit_size: 1..1048576
`

const mkfsExtFeatures list = `
64bit bigalloc casefold dir_index dir_nlink ea_inode encrypt ext_attr extent extents extra_isize fast_commit filetype: -
flex_bg has_journal huge_file inline_data large_dir large_file meta_bg metadata_csum metadata_csum_seed mmp orphan_file: -
project quota resize_inode sparse_super sparse_super2 stable_inodes uninit_bg verity: -
`

const mkfsXFS list = `
-b: keys xfs -b
-d: keys xfs -d
-i: keys xfs -i
-K: -
-l: keys xfs -l
-L: label 12
-m: keys xfs -m
-n: keys xfs -n
-q: -
-s: keys xfs -s
`

const mkfsBtrfs list = `
-d --data -m --metadata: single|dup
--csum --checksum: crc32c|xxhash|sha256|blake2
-K --nodiscard: -
-L --label: label 255
-M --mixed: -
-n --nodesize -s --sectorsize: 4k..64k
-O --features: features btrfs -O
-q --quiet: -
-R --runtime-features: features btrfs -R
`

// mkfsLists are the options of each mkfs.
func mkfsLists() map[string]list {
	return map[string]list{"ext3": mkfsExt, "ext4": mkfsExt, "xfs": mkfsXFS, "btrfs": mkfsBtrfs}
}

// named returns a list that a grammar names: what an option takes as a list.
func named(name string) list {
	switch name {
	case "ext4 -E":
		return mkfsExtExtended
	case "ext4 -J":
		return mkfsExtJournal
	case "ext4 -O":
		return mkfsExtFeatures
	case "xfs -b":
		return "size: 512..64k"
	case "xfs -d":
		return "agcount: 1..65536\nnoalign: -\nsectsize: 512..32k\nsu: 512..1g\nsunit swidth: 0..1048576\nsw: 0..4096"
	case "xfs -i":
		return "attr: 2\nmaxpct: 0..100\nnrext64 projid32bit sparse: 0|1\nperblock: 2..128\nsize: 256..2k"
	case "xfs -l":
		return "internal: [1]\nlazy-count: 0|1\nsize: 2m..2g\nsu: 512..256k\nsunit: 0..512\nversion: 1|2"
	case "xfs -m":
		return "autofsck bigtime crc finobt inobtcount reflink rmapbt: 0|1"
	case "xfs -n":
		return "ftype parent: 0|1\nsize: 4k..64k\nversion: 2|ci"
	case "xfs -s":
		return "size: 512..32k"
	case "btrfs -O":
		return "block-group-tree extref free-space-tree mixed-bg no-holes quota skinny-metadata squota: -"
	case "btrfs -R":
		return "block-group-tree free-space-tree quota: -"
	}
	return ""
}

// maxWords is more than any mkfs needs.
const maxWords = 64

// Mkfs checks the words of an option mkfsOptions, and returns them with each value as
// a separate argument. A fault repeats only words that are on the list or look like
// options: another one may be a secret that was pasted.
func Mkfs(fsType string, words []string) (arguments, faults []string) {
	l := mkfsLists()[fsType]
	if len(words) > maxWords {
		return nil, []string{fmt.Sprintf("mkfsOptions: there are %d words, and at most %d are allowed", len(words), maxWords)}
	}
	var unknown []string
	for i := 0; i < len(words); {
		option, value, given, used := takeOption(l, words[i:])
		grammar := l.grammar(option)
		switch {
		case grammar == "":
			unknown = append(unknown, optionOrPlace(words[i], i))
		case !matches(grammar, value, given):
			faults = append(faults, fmt.Sprintf("mkfsOptions: the value of %s for mkfs.%s is not allowed; it takes %s", option, fsType, plain(describeAll(grammar))))
		case given:
			arguments = append(arguments, option, value)
		default:
			arguments = append(arguments, option)
		}
		i += used
	}
	if len(unknown) > 0 {
		faults = append([]string{fmt.Sprintf("mkfsOptions: not allowed for mkfs.%s: %s; %s", fsType, strings.Join(unknown, ", "), whatAllowed(l))}, faults...)
	}
	return arguments, faults
}

// takeOption reads one option as getopt(3) does, without what would make it
// ambiguous: abbreviated names, and several options behind one dash.
func takeOption(l list, words []string) (option, value string, given bool, used int) {
	option = words[0]
	takes := func(option string) bool { g := l.grammar(option); return g != "" && g != "-" }
	switch {
	case l.grammar(option) == "-":
		return option, "", false, 1
	case takes(option) && len(words) > 1:
		return option, words[1], true, 2
	case takes(option):
		return option, "", false, 1
	}
	if long, v, ok := strings.Cut(option, "="); ok && strings.HasPrefix(option, "--") {
		return long, v, true, 1
	}
	if len(option) > 2 && option[1] != '-' && takes(option[:2]) {
		return option[:2], option[2:], true, 1
	}
	return option, "", false, 1
}

// optionOrPlace is an option as it was written if it looks like one, without
// its value, or else where it stands.
func optionOrPlace(word string, i int) string {
	name, _, _ := strings.Cut(word, "=")
	if strings.HasPrefix(name, "--") && len(name) < 24 && only(name[2:], "-") || len(name) == 2 && name[0] == '-' && isAlphanumeric(rune(name[1])) {
		return name
	}
	return fmt.Sprintf("word %d", i+1)
}

// describeAll describes a grammar with the list that it names.
func describeAll(grammar string) string {
	kind, argument, _ := strings.Cut(grammar, " ")
	if kind != "keys" {
		return describe(grammar)
	}
	var parts []string
	for names, g := range named(argument).lines() {
		parts = append(parts, fmt.Sprintf("%s (%s)", quoted(names), describe(g)))
	}
	return describe(grammar) + ": " + strings.Join(parts, "; ")
}

func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

// DiskTypes are the filesystems that a disk or an image may have.
func DiskTypes() []string { return slices.Clone([]string{"ext4", "xfs", "btrfs", "ext3"}) }
