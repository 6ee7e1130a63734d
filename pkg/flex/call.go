package flex

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Call is one parsed callout. Fields that the callout does not have are zero.
type Call struct {
	Command Command

	// Options is the JSON argument; zero for init, unmount, unmountdevice and
	// detach, which have none.
	Options Options

	// NodeName: attach, isattached, detach.
	NodeName string

	// Device is what attach or waitforattach answered earlier: waitforattach,
	// mountdevice, expandfs. It may be empty, and need not be a path.
	Device string

	// Dir is an absolute, clean path. mount, unmount, expandfs: the pod's
	// volume directory; mountdevice, unmountdevice: the device mount path;
	// expandvolume: a path without meaning that may be empty.
	Dir string

	// VolumeName is the name of the PersistentVolume, or of the pod's volume
	// if it is inline. detach gets it as an argument; elsewhere it equals
	// Options.VolumeName; empty for unmount and unmountdevice.
	VolumeName string

	// NewSize and OldSize are bytes: expandfs, expandvolume.
	NewSize, OldSize int64
}

// argument is one positional argument of a callout.
type argument struct {
	name string // as a person would call it, for messages
	set  func(*Call, string) error
	json bool
}

// subject begins a message about the argument. ParseOptions, which is used by
// itself as well, brings its own.
func (a argument) subject() string {
	if a.json {
		return ""
	}
	return "the " + a.name + " "
}

// signature says which arguments a callout has, in the kubelet's order.
type signature struct {
	command Command
	args    []argument
}

// signatures is the table of the whole protocol. It is a function so that
// nothing is built when the program starts.
//
// Order and number as in Kubernetes v1.37.1, pkg/volume/flexvolume:
// plugin.go:84, 126; attacher.go:39-41, 54-56, 83-86, 105-107;
// mounter.go:58-83; unmounter.go:57-58; detacher.go:41-43, 76-77;
// expander.go:28-37, 56-61.
func signatures() [12]signature {
	options := argument{name: "JSON options", set: setOptions, json: true}
	node := argument{name: "node name", set: setNodeName}
	device := argument{name: "device", set: setDevice}
	dir := argument{name: "directory", set: setDir}
	newSize := argument{name: "new size", set: setNewSize}
	oldSize := argument{name: "old size", set: setOldSize}
	return [...]signature{
		{CommandInit, nil},
		{CommandGetVolumeName, []argument{options}},
		{CommandAttach, []argument{options, node}},
		{CommandIsAttached, []argument{options, node}},
		{CommandWaitForAttach, []argument{device, options}},
		{CommandMountDevice, []argument{dir, device, options}},
		{CommandMount, []argument{dir, options}},
		{CommandExpandVolume, []argument{options, {name: "path", set: setOptionalDir}, newSize, oldSize}},
		{CommandExpandFS, []argument{options, device, dir, newSize, oldSize}},
		{CommandUnmount, []argument{dir}},
		{CommandUnmountDevice, []argument{dir}},
		{CommandDetach, []argument{{name: "volume name", set: setVolumeName}, node}},
	}
}

func signatureOf(c Command) (signature, bool) {
	for _, s := range signatures() {
		if s.command == c {
			return s, true
		}
	}
	return signature{}, false
}

// ParseCall turns the arguments of the process, without the program's name,
// into a Call. It is a pure function: it looks at nothing but args.
//
// Every argument is checked: the number of them, the JSON (see
// [ParseOptions]), that a directory is absolute and clean, that a size is a
// number. init takes no arguments but ignores surplus ones, because it must
// not fail. The errors have the code [CodeInvalidArgument], or
// [CodeUnimplemented] for an unknown callout; they never repeat the JSON
// argument, which may hold secrets.
func ParseCall(args []string) (*Call, error) {
	if len(args) == 0 {
		return nil, Errorf(CodeInvalidArgument, "no callout given: want one of %s", commandList())
	}
	sig, ok := signatureOf(Command(args[0]))
	if !ok {
		return nil, Errorf(CodeUnimplemented, "unknown callout %s: want one of %s", describe(args[0]), commandList())
	}
	call := &Call{Command: sig.command}
	if sig.command == CommandInit {
		return call, nil
	}
	values := args[1:]
	if err := sig.checkCount(values); err != nil {
		return nil, err
	}
	for i, value := range sig.order(values) {
		if err := sig.args[i].set(call, value); err != nil {
			return nil, Errorf(CodeInvalidArgument, "%s: %s%w", sig.command, sig.args[i].subject(), err)
		}
	}
	if call.VolumeName == "" {
		call.VolumeName = call.Options.VolumeName
	}
	return call, nil
}

// checkCount refuses a wrong number of arguments. The kubelet drops the error
// of AppendSpec (attacher.go:40 and others), so that the JSON argument can be
// missing and the others shift by one: that must not be taken for something
// else.
func (s signature) checkCount(values []string) error {
	if len(values) == len(s.args) {
		return nil
	}
	names := make([]string, len(s.args))
	wantsJSON := false
	for i, a := range s.args {
		names[i] = "<" + a.name + ">"
		wantsJSON = wantsJSON || a.json
	}
	hint := ""
	if wantsJSON && len(values) < len(s.args) && !slices.ContainsFunc(values, looksLikeJSON) {
		hint = ": the JSON options are missing"
	}
	return Errorf(CodeInvalidArgument, "%s: got %d arguments, want %d%s; usage: %s %s",
		s.command, len(values), len(s.args), hint, s.command, strings.Join(names, " "))
}

// order puts the arguments of isattached into today's order. Old kubelets gave
// the node's name first; no node is called "{".
func (s signature) order(values []string) []string {
	if s.command == CommandIsAttached && !looksLikeJSON(values[0]) && looksLikeJSON(values[1]) {
		return []string{values[1], values[0]}
	}
	return values
}

func commandList() string {
	var b strings.Builder
	for i, c := range Commands() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(c))
	}
	return b.String()
}

func setOptions(c *Call, s string) (err error) {
	c.Options, err = ParseOptions(s)
	return err
}

func setNodeName(c *Call, s string) error {
	c.NodeName = s
	return checkName(s)
}

func setVolumeName(c *Call, s string) error {
	c.VolumeName = s
	return checkName(s)
}

// setDevice takes anything on one line: what attach answered comes back here,
// and that is for the driver to understand.
func setDevice(c *Call, s string) error {
	c.Device = s
	return checkText(s)
}

func setDir(c *Call, s string) error {
	c.Dir = s
	return checkDir(s)
}

// setOptionalDir allows the empty path: kube-controller-manager has no plugin
// directory and sends a meaningless one
// (pkg/controller/volume/expand/expand_controller.go:384).
func setOptionalDir(c *Call, s string) error {
	c.Dir = s
	if s == "" || !path.IsAbs(s) {
		c.Dir = ""
		return checkText(s)
	}
	return checkDir(s)
}

func setNewSize(c *Call, s string) (err error) {
	if c.NewSize, err = parseSize(s); err == nil && c.NewSize == 0 {
		err = Errorf(CodeInvalidArgument, "is 0: want the wanted size in bytes")
	}
	return err
}

func setOldSize(c *Call, s string) (err error) {
	c.OldSize, err = parseSize(s)
	return err
}

// parseSize reads what strconv.FormatInt wrote (expander.go:60): digits.
func parseSize(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, Errorf(CodeInvalidArgument, "%s is not a size: want a number of bytes", describe(s))
	}
	return int64(n), nil
}
