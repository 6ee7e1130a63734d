package csiclient

// ended returns false: CSI drivers are on nodes, and gRPC notices it, too.
func ended(uintptr) bool { return false }
