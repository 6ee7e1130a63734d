package bridge

// Busy reports whether any operation is under way.
func (b *Bridge) Busy() bool { return len(b.Operations()) > 0 }

// Operations returns those that are under way or wait for their turn.
func (b *Bridge) Operations() (all []string) {
	b.registry.mu.Lock()
	defer b.registry.mu.Unlock()
	for _, v := range b.registry.volumes {
		for _, p := range v.ops {
			all = append(all, string(p.command)+" "+p.dir)
		}
	}
	return all
}
