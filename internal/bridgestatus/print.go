package bridgestatus

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/report"
)

// Show makes tables with a row for each volume, or for each pod and volume.
func (s *BridgeStatus) Show(view report.View, byPod bool) *report.Report {
	isWide := view == report.Wide
	volumes := s.volumeTable(isWide, byPod)
	r := &report.Report{Sections: []report.Section{volumes.section()}}
	for _, t := range []table{s.failureTable(isWide), s.driverTable(), s.lostTable(), s.pendingUnmountTable()} {
		if len(t.rows) > 0 {
			r.Sections = append(r.Sections, t.section())
		}
	}
	var texts []string
	if c := s.Cluster; c != nil && !c.Reachable && c.LastError != "" {
		texts = append(texts, "the API server cannot be reached ("+s.age(c.Since)+"): "+c.LastError)
	}
	for _, f := range s.BrokenFiles {
		texts = append(texts, "broken state file: "+f)
	}
	r.Sections = append(r.Sections, report.Section{Notes: report.Notes(texts...)})
	return r
}

// A table is columns of text.
type table struct {
	header []string
	rows   [][]string
}

// add adds a row. Its last cells are of columns that only a wide table has.
func (t *table) add(row ...string) { t.rows = append(t.rows, row[:len(t.header)]) }

func (t *table) section() report.Section {
	return report.Section{Rows: &report.Rows{Columns: t.header, All: slices.Values(t.rows)}}
}

// ObjectNames are the PersistentVolumes of the volumes, as type/name.
func (s *BridgeStatus) ObjectNames() (names []string) {
	for i := range s.Volumes {
		if name := s.Volumes[i].PersistentVolume; name != "" {
			names = append(names, "persistentvolume/"+name)
		}
	}
	return names
}
