package doctor

// Kinds are all that can be found.
func Kinds() []*Kind { return kinds }
