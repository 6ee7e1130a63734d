package clusterview

import "errors"

// A User is who asks the API server.
type User struct {
	Name string
	// Node is the one that the user's token is bound to; may be empty.
	Node string
}

// An Attempt is a VolumeAttachment that flex2csi might make, or a thief with its token.
type Attempt struct {
	// As is the user to impersonate; its Name is empty for the one that asks.
	As User
	// By is package attachment's word for who attaches.
	By, Node, Driver string
	// Unmarked: the VolumeAttachment does not say that it is flex2csi's.
	Unmarked bool
}

// ErrNoRight says that the user of an Attempt may create no VolumeAttachments at all.
var ErrNoRight = errors.New("there is no right to create VolumeAttachments")
