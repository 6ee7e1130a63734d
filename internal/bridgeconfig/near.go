package bridgeconfig

import "strings"

// near returns the presets that a wrong name may stand for: those of a FlexVolume driver of
// that name, with the name in theirs, or with a name that differs in two letters at most.
func near(all []Preset, name string) (names []string) {
	name = strings.ToLower(name)
	for _, p := range all {
		if p.FlexDriver == name || name != "" && strings.Contains(p.Name, name) || distance(p.Name, name) <= 2 {
			names = append(names, p.Name)
		}
	}
	return names
}

// distance is how many letters have to be changed, added or removed (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
