package assess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

// Incomplete is an error if a class of the plan cannot be created as it is.
func (p *ClassPlan) Incomplete() error {
	var names []string
	for _, c := range p.classes {
		if !c.complete() {
			names = append(names, c.old.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("create the CSI StorageClass in place of %s: not all of it is known; flex2csi migrate classes -o table says what is to fill in", strings.Join(names, ", "))
}

// manifests are the new classes. Where a value is to be filled in, the API server refuses
// the manifest as it is.
func (p *ClassPlan) manifests() ([]map[string]any, error) {
	all := []map[string]any{}
	for _, c := range p.classes {
		if c.blocked != "" {
			continue
		}
		data, err := json.Marshal(c.object)
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, err
		}
		for field, what := range c.fillIn {
			object[field] = fmt.Sprintf("%s%s (%s)>", bridgeconfig.OpenMark, field, what)
		}
		all = append(all, object)
	}
	return all, nil
}

// MarshalJSON makes a List of the new classes.
func (p *ClassPlan) MarshalJSON() ([]byte, error) {
	all, err := p.manifests()
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
}

// YAML are the new classes, with what is to be decided as comments.
func (p *ClassPlan) YAML() ([]byte, error) {
	all, err := p.manifests()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, c := range p.classes {
		b.WriteString("---\n")
		for _, text := range append([]string{"In place of StorageClass " + c.old.Name + ", provisioner " + c.old.Provisioner + "."}, c.open()...) {
			fmt.Fprintf(&b, "# %s\n", report.OneLine(text))
		}
		if c.blocked != "" {
			continue
		}
		text, err := report.YAML(all[0])
		if err != nil {
			return nil, err
		}
		all = all[1:]
		b.Write(text)
	}
	return b.Bytes(), nil
}

// open is what a person has to do about a class.
func (c *newClass) open() (all []string) {
	if c.blocked != "" {
		all = append(all, "not made: "+c.blocked)
	}
	for _, field := range slices.Sorted(maps.Keys(c.fillIn)) {
		all = append(all, fmt.Sprintf("fill in %s: %s", field, c.fillIn[field]))
	}
	for _, text := range c.refused {
		all = append(all, "blocked: "+text)
	}
	for _, text := range c.decide {
		all = append(all, "decide: "+text)
	}
	return all
}

// state is what can be done with a class.
func (c *newClass) state() string {
	switch {
	case c.blocked != "" || len(c.refused) > 0:
		return "blocked"
	case len(c.fillIn) > 0:
		return "to fill in"
	case c.made:
		return "made"
	case len(c.decide) > 0:
		return "to decide"
	}
	return "ready"
}

// Show makes the classes, what changes, and the commands.
func (p *ClassPlan) Show(report.View) *report.Report {
	r := &report.Report{}
	add := func(s report.Section) { r.Sections = append(r.Sections, s) }
	if len(p.classes) == 0 {
		add(report.Section{Notes: report.Notes(p.source + ": no StorageClass makes FlexVolumes.")})
	} else {
		add(report.Section{Rows: report.Of(p.classes, (*newClass).cells,
			"StorageClass", "Provisioner now", "Provisioner then", "New name", "Claim templates", "Ephemeral", "Pending", "State")})
		for _, c := range p.classes {
			add(report.Section{Notes: []report.Note{c.note()}})
		}
		add(p.commands())
	}
	for _, text := range p.unread {
		add(report.Section{Notes: report.Notes("not read: " + text + "; the list may be incomplete")})
	}
	return r
}

func (c *newClass) cells() []string {
	return []string{
		c.old.Name, c.old.Provisioner, c.object.Provisioner, c.object.Name,
		strconv.Itoa(c.named[claimTemplate]), strconv.Itoa(c.named[ephemeralVolume]), strconv.Itoa(c.named[pendingClaim]), c.state(),
	}
}

func (c *newClass) note() report.Note {
	changes := []string{"parameters now:  " + texts(c.old.Parameters)}
	if c.fillIn["parameters"] == "" {
		changes = append(changes, "parameters then: "+texts(c.object.Parameters))
	}
	return report.Note{Text: c.old.Name, Notes: report.Notes(append(changes, c.open()...)...)}
}

// commands are what to type, in this order.
func (p *ClassPlan) commands() report.Section {
	steps := slices.Concat(p.classSteps(), p.steps)
	if p.options.Suffix == "" {
		steps = append(steps, classStep{what: "Pending claims: nothing. Kubernetes passes them to the new provisioner within a minute"})
	} else {
		steps = append(steps, classStep{what: "Keep the old classes while claims name them: an expansion goes by the claim's class. Then delete them"})
	}
	s := report.Section{Heading: "Steps, each to be pasted into a shell. Change the same in Git and in charts.", Numbered: true}
	for _, step := range append(steps, classStep{what: "Stop the old provisioners"}) {
		s.Notes = append(s.Notes, report.Note{Text: step.what, Command: step.command})
	}
	return s
}

// classSteps create the new classes.
func (p *ClassPlan) classSteps() (all []classStep) {
	var names []string
	for _, c := range p.classes {
		if c.complete() && !c.made {
			names = append(names, c.old.Name)
		}
	}
	if p.Incomplete() != nil {
		all = append(all, classStep{what: "Settle what is to fill in or blocked: write classParameters into the configuration (docs/bridge-configuration.md), or fill in and apply the manifests of -o yaml. Then run this command again, for what names these classes"})
	}
	if p.options.Suffix == "" {
		for _, name := range names {
			all = append(all, classStep{"StorageClass " + name + ": replace it. The file .old.yaml is for the way back, kubectl replace --force -f", p.sameName(name)})
		}
		return all
	}
	if len(names) > 0 {
		all = append(all, classStep{"Create the new classes", p.options.Command + " " + quoted(names) + " -o yaml >storageclasses.yaml &&\nkubectl apply -f storageclasses.yaml"})
	}
	for _, c := range p.classes {
		if marks := defaultMarks(c.old); c.complete() && marks != "" {
			all = append(all, classStep{"StorageClass " + c.old.Name + " is no longer the default", "kubectl annotate storageclass " + report.Quote(c.old.Name) + marks})
		}
	}
	return all
}

// sameName replaces a class, which is immutable, by deleting it. The new one is in a file
// before: if creating fails, the last command is to be repeated.
func (p *ClassPlan) sameName(name string) string {
	word, file, old := report.Quote(name), report.Quote("storageclass-"+name+".yaml"), report.Quote("storageclass-"+name+".old.yaml")
	return strings.Join([]string{
		"kubectl get storageclass " + word + " -o yaml >" + old,
		p.options.Command + " " + word + " -o yaml >" + file,
		"kubectl delete storageclass " + word,
		"kubectl create -f " + file,
	}, " &&\n")
}

// defaultMarks removes the annotations that a class has as the default.
func defaultMarks(c *objects.FlexClass) (marks string) {
	for _, key := range []string{objects.Default, objects.BetaDefault} {
		if c.Annotations[key] == "true" {
			marks += " " + key + "-"
		}
	}
	return marks
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = report.Quote(name)
	}
	return strings.Join(all, " ")
}
