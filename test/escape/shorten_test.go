package escape

import (
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/test/trace"
)

// shorten leaves out of an attempt what its escape does not need, and says how to have
// it again.
func (w *world) shorten(watcher *trace.Watcher, a *attempt, what string) string {
	best, argv, sure := a, [][]string(nil), false
	escapes := func(candidate *attempt) bool {
		tries := 1
		if candidate.flip != "" {
			tries = 30 // it is a matter of luck
		}
		for range tries {
			o, err := w.try(watcher, candidate)
			if err == nil && len(o.escapes) > 0 && w.general(o.escapes[0]) == what {
				best, argv, sure = candidate, o.argv, true
				return true
			}
		}
		return false
	}
	escapes(a)
	for range 3 { // what can be left out may depend on what is
		for _, change := range best.shorter() {
			smaller := best.clone()
			if change(smaller) {
				escapes(smaller)
			}
		}
	}
	text := shell(argv)
	if best.flip != "" {
		to := w.flips()[best.flip]
		text = "# while " + best.flip + " leads to " + to[0] + " and " + to[1] + " by turns\n" + text
	}
	if !sure {
		return "# not seen a second time\n" + shell([][]string{w.argv(w.drivers[a.driver], a, a.calls[0])})
	}
	return text
}

func (a *attempt) clone() *attempt {
	b := *a
	b.options, b.secrets, b.calls = maps.Clone(a.options), maps.Clone(a.secrets), slices.Clone(a.calls)
	return &b
}

// shorter are changes that may make an attempt shorter; each reports whether it has.
func (a *attempt) shorter() []func(*attempt) bool {
	changes := []func(*attempt) bool{
		func(b *attempt) bool { b.calls = b.calls[:max(1, len(b.calls)-1)]; return len(b.calls) < len(a.calls) },
		func(b *attempt) bool { b.calls = b.calls[min(1, len(b.calls)-1):]; return len(b.calls) < len(a.calls) },
		func(b *attempt) bool { b.secrets = nil; return a.secrets != nil },
		func(b *attempt) bool { b.raw = ""; return a.raw != "" },
		func(b *attempt) bool { b.fsGroup, b.readOnly = false, false; return a.fsGroup || a.readOnly },
		func(b *attempt) bool { b.fsType = ""; return a.fsType != "" },
		func(b *attempt) bool { b.flip = ""; return a.flip != "" },
		func(b *attempt) bool { b.absent = ""; return a.absent != "" },
		func(b *attempt) bool {
			b.pod, b.volume, b.uid = "pod", "v", ownPod
			return a.pod != "pod" || a.volume != "v"
		},
	}
	for _, key := range slices.Sorted(maps.Keys(a.options)) {
		changes = append(changes, func(b *attempt) bool { delete(b.options, key); return true })
		for _, separator := range []string{",", " "} {
			for i := range strings.Split(a.options[key], separator) {
				changes = append(changes, func(b *attempt) bool {
					parts := strings.Split(b.options[key], separator)
					if len(parts) < 2 || i >= len(parts) || key == "image" || key == "path" {
						return false
					}
					b.options[key] = strings.Join(slices.Delete(parts, i, i+1), separator)
					return true
				})
			}
		}
	}
	return changes
}

// shell is how to type calls.
func shell(calls [][]string) string {
	var lines []string
	for _, argv := range calls {
		words := slices.Clone(argv)
		for i, word := range words {
			if word == "" || strings.ContainsAny(word, " \t\n\"'\\$`{}()[]*?;&|<>#~=,") {
				words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}
