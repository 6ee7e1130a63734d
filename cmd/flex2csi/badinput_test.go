package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// badExpressions are expressions of a configuration that people have written or may write,
// and what they are told. Each says what to write.
func badExpressions() [][3]string {
	return [][3]string{
		{"fsType", `ext4`, `undeclared reference to 'ext4' (column 1); for this text write '"ext4"'`},
		{"fsType", `'"ext4'`, `unexpected '"ext4' (column 1); close the quote, or join texts with +`},
		{"handle", `'"a" "b"'`, `close the quote, or join texts with +`},
		{"handle", `options["x"`, `missing ']' (column 12)`},
		{"handle", `options.x ?? "y"`, `or options.?name.orValue("other")`},
		{"handle", `'options.x || "y"'`, `write options.?name.orValue("other") for a default; && and || join comparisons`},
		{"handle", `options.x[0:3]`, `write .substring(FROM, TO) for a part of a text`},
		{"handle", `options.x; options.y`, `unexpected ';' (column 10); want one expression`},
		{"handle", `options.x.replace('a')`, `(column 18); docs/mapping.md lists the functions`},
		{"handle", `options.x.lower()`, `did you mean 'lowerAscii'?`},
		{"handle", `options`, `gives map(string, string), want string; take one of them: options.NAME`},
		{"handle", `null`, `want an expression but got null: put single quotes around it`},
		{"handle", `''`, `empty (leave it out for the default; the empty text is '""')`},
		{"handle", `options.x.split(",")`, `join its texts: .join(",")`},
		{"handle", `pv.name`, `did you mean 'pvName'?`},
		{"handle", `node`, `for this text write '"node"'`},
		{"handle", `options.x ?: "y"`, `line 7: not YAML`},
		{"accessMode", `ReadWriteMany`, `for this text write '"ReadWriteMany"'`},
		{"handle", `vol-1`, `for this text write '"vol-1"'`},
		{"handle", `//server/share`, `for this text write '"//server/share"'`},
		{"handle", `7`, `want an expression but got the number 7: put single quotes around it`},
		{"handle", `'7'`, `gives int, want string; string(…) makes a text of it`},
		{"handle", `true`, `want an expression but got a boolean: put single quotes around it`},
		{"handle", `options.x +`, `the expression ends too early (column 12)`},
		{"handle", `(options.x`, `missing ')' (column 11)`},
		{"handle", `options.?x`, `gives optional_type(string), want string; end it with .orValue("")`},
		{"handle", `options.data-pool`, `write options["data-pool"]: a name with - in it needs brackets`},
		{"handle", `'options.a = "b"'`, `write == to compare`},
		{"handle", `'options.a == "b" and options.c == "d" ? "x" : "y"'`, `write && for and, || for or, ! for not`},
		{"handle", `options.x | options.y`, `write || for or, && for and`},
		{"handle", `'if options.x == "" { "a" }'`, `write CONDITION ? VALUE : OTHER`},
		{"handle", `'options.x ? "a" : "b"'`, `a condition is a comparison, such as options.x == "true"`},
		{"handle", `options.server:options.share`, `join texts with +, such as options.a + ":" + options.b`},
		{"handle", `'"{{ .options.x }}'`, `expressions are CEL, not templates: write options.NAME for an option`},
		{"handle", `${options.x}`, `expressions are CEL, not templates: write options.NAME for an option`},
		{"handle", `'"a" + 1'`, `string(…), int(…) and quotes make values of one type`},
		{"handle", `optons.x`, `undeclared reference to 'optons' (did you mean 'options'?)`},
		{"handle", `pvname`, `did you mean 'pvName'?`},
		{"handle", `pod.uuid`, `undefined field 'uuid' (column 4); pod has name, namespace, uid and serviceAccount`},
		{"handle", `secret.password`, `expressions see no secrets: name them in the section secrets`},
		{"handle", `lower(options.x)`, `docs/mapping.md lists the variables and functions`},
		{"context", `'{"a": options.?b}'`, `write {?"key": options.?name} to leave the key out without the option, or options.?name.orValue("")`},
		{"context", `'{"a": options.?b, "c": "x"}'`, `write {?"key": options.?name}`},
		{"context", `'{a: options.a}'`, `put keys and texts into double quotes, such as {"key": options.key}`},
		{"context", `{a: options.a}`, `want an expression but got an object: put single quotes around it`},
		{"context", `options.a`, `gives string, want map(string, string); write {"key": options.key}`},
		{"mountFlags", `noatime`, `for this text write '["noatime"]'`},
		{"mountFlags", `noatime,discard`, `for this text write '["noatime", "discard"]'`},
		{"mountFlags", `[noatime]`, `want an expression but got an array: put single quotes around it`},
		{"mountFlags", `'[noatime]'`, `put a text into double quotes; an option is options.NAME`},
		{"mountFlags", `options.flags`, `put it into brackets, or split it: splitOptions(options.flags)`},
	}
}

// TestBadExpressions: each answer says what to write.
func TestBadExpressions(t *testing.T) {
	for _, row := range badExpressions() {
		config := fmt.Sprintf("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: example.com/disk\n  csiDriver: disk.csi.example.com\n  volume:\n    %s: %s\n", row[0], row[1])
		refused(t, 1, config, row[2], "check", "--config", "-")
	}
}

// TestBadArguments: command lines that people have written or may write, and the answers.
func TestBadArguments(t *testing.T) {
	const usage = 2
	tests := []struct {
		line string
		code int
		want string
	}{
		{"migrate apply --all --width x", usage, "--width x: want a whole number"},
		{"migrate plan --all --dry-run-server=maybe", usage, "--dry-run-server maybe: want true or false"},
		{"migrate classes --suffix=", usage, "--suffix is empty: use --same-name to keep the names"},
		{"migrate classes -f - --config -", usage, "standard input cannot be both"},
		{"migrate classes -f INPUT fast", 1, "replace StorageClass fast: it does not make FlexVolumes, or was not found; without names the command lists those that do"},
		{"status --timeout 90", usage, "--timeout 90: want a duration such as 90s or 5m"},
		{"check --config a --config b", usage, "given twice (a as well): put all drivers into one file"},
		{"check a b", usage, `unexpected argument "b": check takes one file`},
		{"check --config a b", usage, `unexpected argument "b": check takes one file`},
		{"check -o table", usage, "want one of yaml, json"},
		{"preset show fstab/cifs", usage, `there is no preset "fstab/cifs": did you mean fstab-cifs?`},
		{"preset show fstab-cfis", usage, "did you mean fstab-cifs?"},
		{"preset show", usage, "flex2csi preset list has their names"},
		{"preset show oci-block --set ocidPrefix=a --set ocidPrefix=b", usage, "--set ocidPrefix: given twice"},
		{"preset show oci-block --set ocidPrefix=ocid1.volume.oc1.phx.", usage, `oci-block adds the "." at the end: leave it out`},
		{"preset show oci-block --set ocidprefix=x", usage, "nothing of that name is to be filled in, only ocidPrefix"},
		{"preset show azure-smb --set x=y", usage, "--set x: there is nothing to be filled in"},
		{"preset show oci-block --set ocidPrefix", usage, "want name=value"},
		{"preset show oci-block --set ocidPrefix=", usage, "begins with a letter or digit"},
		{"map", usage, "give the volume either with -f or as a callout"},
		{"map -f - mount /d {}", usage, "give the volume either with -f or as a callout"},
		{"map -f - --config -", usage, "standard input cannot be both"},
		{"map -f - pv1 -o yaml", usage, "-o comes after a name: put flags before names"},
		{"map --capability STAGE -f INPUT", 1, `capability "STAGE" is none of STAGE_UNSTAGE_VOLUME, `},
		{"map -f INPUT pv9", 1, `no FlexVolume is called "pv9": give the name of a PersistentVolume, or namespace/name of a claim; -o name lists them`},
		{"map unmount /d", 1, "give the mount or attach of that volume"},
		{"map mount /d notjson", 1, "the JSON options do not begin with {: are the arguments in the right order?"},
		{"map mount", 1, "the JSON options are missing; usage: mount <directory> <JSON options>"},
		{"map main.go", usage, "main.go is a file, and no callout: give it with -f"},
		{"map mont /d {}", 1, `unknown callout "mont": want one of init, getvolumename`},
		{"map attach {}", 1, "usage: attach <JSON options> <node name>"},
		{"map init", 1, "give the mount or attach of that volume"},
		{"map -f INPUT --context nope", 1, `context "nope" does not exist`},
		{"chek", usage, `unknown command "chek" (did you mean check?): want one of assess, check`},
		{"migrate aply --all", usage, `unknown command "aply" (did you mean apply?): want one of apply`},
		{"help foo", usage, `unknown command "foo"`},
		{"completion tcsh", usage, "which shell? want one of bash, zsh, fish, powershell"},
		{"completion", usage, "which shell? want one of bash, zsh, fish, powershell"},
		{"version now", usage, `unexpected argument "now"`},
		{"check no/file.yaml", 1, "read configuration no/file.yaml: "},
		{"preset show OCI-Block", usage, "did you mean oci-block?"},
		{"preset show rook", usage, "did you mean rook-cephfs or rook-rbd?"},
		{"preset show azure-smb azure-smb", usage, "azure-smb is named twice"},
		{"assess --fail-on foo", usage, `invalid argument "foo" for "--fail-on" flag: want flexvolumes`},
		{"assess -f INPUT -o name", usage, "want one of table, wide, json, yaml, csv, html"},
		{"assess -f INPUT --kubeconfig x", usage, "--filename and --kubeconfig exclude each other: give one of them"},
		{"assess -f no/file.yaml", 1, "no/file.yaml: "},
		{"assess --kubeconfig no/config", 1, "kubeconfig no/config: "},
		{"assess --kubeconfig NOWHERE", 1, "no kubeconfig is given: give one with --kubeconfig or in $KUBECONFIG"},
		{"assess --kubeconfig NOCONTEXT", 1, "the kubeconfig has no current context: give --context, one of a, b"},
		{"assess --kubeconfig NOCLUSTER", 1, `context "a" of the kubeconfig has no cluster with a server: choose another one with --context`},
		{"assess --kubeconfig DOWN --context c", 1, `context "c" does not exist`},
		{"assess --kubeconfig DOWN", 1, "127.0.0.1:1: connect: connection refused; the API server is away or busy: a retry may succeed"},
		{"migrate plan", usage, "which volumes? Name some, or choose them with --claim"},
		{"migrate plan --all --kubeconfig DOWN", 1, "connect: connection refused"},
		{"migrate plan --driver disk", usage, `--driver: driver name "disk" has no vendor, which flex2csi does not support: want vendor/name`},
		{"migrate plan -l a=b,,", usage, "--selector a=b,,: want one such as app=shop,tier!=cache"},
		{"migrate plan --claim-selector =x", usage, "--claim-selector =x: want one such as app=shop"},
		{"migrate plan --claim data", usage, "--claim data: want namespace/name"},
		{"migrate plan --all --secret a/b:nodeStage=x", usage, "--secret a/b:nodeStage=x: want vendor/name:stage=namespace/name"},
		{"migrate apply --all --yes --rolling --offline", usage, "--offline and --rolling exclude each other: give one of them"},
		{"migrate apply --all --yes --accept foo", usage, "--accept foo: no check of that name has something to decide, only owners, csi-driver, "},
		{"migrate apply --all --yes --width 0", usage, "--width 0: want 1 to 100"},
		{"migrate apply --all --yes --timeout 5", usage, "--timeout 5: want a duration such as 90s or 5m"},
		{"migrate apply --all", usage, "standard input is not a terminal: confirm with --yes"},
		{"migrate resume --accept owner", usage, "--accept owner: no check of that name"},
		{"migrate rollback --all --yes --accept x", usage, "--accept x: no check of that name"},
		{"migrate rollback", usage, "which volumes? Name some, or give --namespace or --all"},
		{"migrate finish --driver foo", usage, `--driver: driver name "foo" has no vendor, which flex2csi does not support: want vendor/name`},
		{"doctor --on moon", usage, `invalid argument "moon" for "--on" flag: want one of auto, node, cluster, both`},
		{"doctor --timeout 0", usage, "--timeout 0s: want 1s to 1h"},
		{"status --by node", usage, `invalid argument "node" for "--by" flag: want one of volume, pod`},
		{"status --timeout 0", usage, "--timeout 0s: want more than 0, such as 30s"},
	}
	input := write(t, "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {flexVolume: {driver: example.com/disk, options: {volumeID: x}}}\n")
	config := write(t, oneDriver)
	t.Setenv("KUBECONFIG", "")
	files := strings.NewReplacer("INPUT", input, "NOWHERE", write(t, ""), "NOCONTEXT", write(t, kubeconfig+"contexts: [{name: b}, {name: a}]\n"),
		"NOCLUSTER", write(t, kubeconfig+"current-context: a\ncontexts: [{name: a, context: {cluster: x}}]\n"),
		"DOWN", write(t, kubeconfig+"current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\n"))
	for _, tt := range tests {
		args := strings.Fields(files.Replace(tt.line))
		if args[0] == "map" && !strings.Contains(tt.line, "--config") {
			args = append([]string{"map", "--config", config}, args[1:]...)
		}
		refused(t, tt.code, "", tt.want, args...)
	}
}

const kubeconfig = "apiVersion: v1\nkind: Config\n"

const oneDriver = "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: example.com/disk, csiDriver: disk.csi.example.com}\n"

// TestBadVolumes: manifests that cannot be mapped, and the answers.
func TestBadVolumes(t *testing.T) {
	pv := func(spec string) string {
		return "kind: PersistentVolume\nmetadata: {name: pv1}\nspec: {" + spec + "}\n"
	}
	tests := []struct{ input, want string }{
		{"", "there is no FlexVolume in it: want a PersistentVolume with spec.flexVolume"},
		{"hello", "want a manifest, but got a string"},
		{"kind: List\nitems:\n- a: b: c\n", "line 3: not YAML"},
		{`{"kind": "List", "items": [`, "not JSON: unexpected EOF"},
		{"kind: PersistentVolume\nspec: {flexVolume: {driver: example.com/disk}}", "a PersistentVolume has no name: set metadata.name"},
		{pv("flexVolume: {options: {volumeID: x}}"), "flexVolume.driver is missing: set it to the vendor/name"},
		{pv("flexVolume: {driver: example.com/dsk}"), `the configuration has no driver "example.com/dsk", only example.com/disk: add it; flex2csi preset list shows mappings`},
		{pv("flexVolume: {driver: example.com/disk, options: {volumeID: 7}}"), `option "volumeID" is a number: want a string; put it in quotes`},
		{pv("flexVolume: {driver: example.com/disk}"), "the handle is empty: give the volume the option volumeHandle or volumeID"},
		{pv("capacity: {storage: much}, flexVolume: {driver: example.com/disk}"), "spec.capacity.storage: "},
		{pv("flexVolume: {driver: example.com/disk, secretRef: {name: s}}") + "---\nkind: Secret\nmetadata: {name: s, namespace: <namespace>}\ndata: {a: '%'}\n", "is not base64: put plain text into stringData"},
	}
	config := write(t, oneDriver)
	for _, tt := range tests {
		refused(t, 1, tt.input, tt.want, "map", "--config", config, "-f", "-")
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused checks that a command fails and says what is wanted.
func refused(t *testing.T, code int, stdin, want string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	got := run(args, environment{in: strings.NewReader(stdin), out: &out, err: &errs})
	if got != code || !strings.Contains(errs.String(), want) {
		t.Errorf("%s\n%s\nstatus %d, want %d:\n%s\nwant: %s", strings.Join(args, " "), stdin, got, code, errs.String(), want)
	}
}
