package flex

// Command is the name of a callout: the first argument that the kubelet gives.
type Command string

// The callouts, by the names in pkg/volume/flexvolume/driver-call.go:30-49
// (Kubernetes v1.37.1). What each one gets, must do and may return is said at
// the fields of [Driver].
const (
	CommandInit          Command = "init"
	CommandGetVolumeName Command = "getvolumename"
	CommandAttach        Command = "attach"
	CommandIsAttached    Command = "isattached"
	CommandWaitForAttach Command = "waitforattach"
	CommandMountDevice   Command = "mountdevice"
	CommandMount         Command = "mount"
	CommandUnmount       Command = "unmount"
	CommandUnmountDevice Command = "unmountdevice"
	CommandDetach        Command = "detach"
	CommandExpandVolume  Command = "expandvolume"
	CommandExpandFS      Command = "expandfs"
)

// Commands returns all callouts in the order of a volume's life.
func Commands() []Command {
	table := signatures()
	commands := make([]Command, 0, len(table))
	for _, s := range table {
		commands = append(commands, s.command)
	}
	return commands
}

// Known reports whether c is a callout of the FlexVolume protocol.
func (c Command) Known() bool {
	_, ok := signatureOf(c)
	return ok
}
