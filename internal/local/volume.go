package local

// Kind is what a volume is made of.
type Kind string

// The kinds, named by the option that chooses them.
const (
	kindImage  Kind = "image"  // a file that holds a disk
	kindDevice Kind = "device" // a block device
	kindSource Kind = "source" // a network or other filesystem
	kindPath   Kind = "path"   // a directory of the node
	kindMemory Kind = "medium" // tmpfs
)

// The options of a volume, as they stand in the PersistentVolume under
// spec.flexVolume.options. docs/volumes.md is the reference for users.
const (
	optionImage        = "image"
	optionDevice       = "device"
	optionSource       = "source"
	optionPath         = "path"
	optionMedium       = "medium"
	optionSize         = "size"
	optionMountOptions = "mountOptions"
	optionMkfsOptions  = "mkfsOptions"
	optionSELinux      = "seLinuxContext"
)

// A Volume is what the options of one call say.
type Volume struct {
	Kind Kind
	// Source is the value of the option that names the kind.
	Source       string
	Size         int64 // bytes; 0 if not given
	FSType       string
	ReadOnly     bool
	MountOptions []string
	MkfsOptions  []string
}

// defaultMemory is the size of a memory volume that gives none.
const defaultMemory = 64 << 20

// isDisk: a device under a filesystem of its own, with a device mount path.
func (v *Volume) isDisk() bool { return v.Kind == kindImage || v.Kind == kindDevice }

// kinds says which options go with which kind.
func kinds() map[Kind][]string {
	return map[Kind][]string{
		kindImage:  {optionImage, optionSize, optionMkfsOptions},
		kindDevice: {optionDevice, optionMkfsOptions},
		kindSource: {optionSource},
		kindPath:   {optionPath},
		kindMemory: {optionMedium, optionSize},
	}
}
