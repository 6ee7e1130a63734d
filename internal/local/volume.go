package local

// sourceKind is what a volume is made of.
type sourceKind string

// The kinds, named by the option that chooses them.
const (
	kindImage  sourceKind = "image"  // a file that holds a disk
	kindDevice sourceKind = "device" // a block device
	kindSource sourceKind = "source" // a network or other filesystem
	kindPath   sourceKind = "path"   // a directory of the node
	kindMemory sourceKind = "medium" // tmpfs
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
	optionSELinux      = "seLinuxContext"
)

// A Volume is what the options of one call say.
type Volume struct {
	Kind sourceKind
	// Source is the value of the option that names the kind.
	Source       string
	Size         int64 // bytes; 0 if not given
	FSType       string
	ReadOnly     bool
	MountOptions []string
}

// defaultMemory is the size of a memory volume that gives none.
const defaultMemory = 64 << 20

// isDisk: a device under a filesystem of its own, with a device mount path.
func (v *Volume) isDisk() bool { return v.Kind == kindImage || v.Kind == kindDevice }

// kinds says which options go with which kind.
func kinds() map[sourceKind][]string {
	return map[sourceKind][]string{
		kindImage:  {optionImage, optionSize},
		kindDevice: {optionDevice},
		kindSource: {optionSource},
		kindPath:   {optionPath},
		kindMemory: {optionMedium, optionSize},
	}
}
