// Package allow has the lists of what the options of a local volume may say:
// options of mount, types of filesystems and their sources.
//
// The author of a pod may write these options, and root runs the programs that
// read them. So an option is refused unless it is on a list, and its value
// unless it matches the grammar there. No grammar lets a value name a file, a
// device or a program of the node. docs/volumes.md shows the lists to users; a
// test compares it with them.
package allow
