package assess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/flexclass"
	"github.com/flex2csi/flex2csi/internal/shell"
	"github.com/flex2csi/flex2csi/internal/yamltext"
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
			object[field] = fmt.Sprintf("%s%s (%s)>", bridgeconfig.OpenMark, field, printable(what))
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
		fmt.Fprintf(&b, "---\n# In place of StorageClass %s, provisioner %s.\n", printable(c.old.Name), printable(c.old.Provisioner))
		for _, text := range c.open() {
			fmt.Fprintf(&b, "# %s\n", printable(text))
		}
		if c.blocked != "" {
			continue
		}
		data, err := json.Marshal(all[0])
		if err != nil {
			return nil, err
		}
		all = all[1:]
		text, err := yamltext.FromJSON(data)
		if err != nil {
			return nil, err
		}
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

// Table prints the classes, what changes, and the commands.
func (p *ClassPlan) Table(out io.Writer, _ bool) error {
	var b strings.Builder
	if len(p.classes) == 0 {
		fmt.Fprintf(&b, "%s: no StorageClass makes FlexVolumes.\n", p.source)
	} else {
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "STORAGECLASS\tPROVISIONER NOW\tPROVISIONER THEN\tNEW NAME\tCLAIM TEMPLATES\tEPHEMERAL\tPENDING\tSTATE")
		for _, c := range p.classes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", printable(c.old.Name), printable(c.old.Provisioner), printable(dash(c.object.Provisioner)), printable(c.object.Name),
				c.named[claimTemplate], c.named[ephemeralVolume], c.named[pendingClaim], c.state())
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, c := range p.classes {
			c.print(&b)
		}
		p.commands(&b)
	}
	for _, text := range p.unread {
		fmt.Fprintf(&b, "\nnot read: %s; the list may be incomplete\n", printable(text))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (c *newClass) print(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n  parameters now:  %s\n", printable(c.old.Name), printable(texts(c.old.Parameters)))
	if c.fillIn["parameters"] == "" {
		fmt.Fprintf(b, "  parameters then: %s\n", printable(texts(c.object.Parameters)))
	}
	for _, text := range c.open() {
		fmt.Fprintf(b, "  %s\n", printable(text))
	}
}

// commands prints what to type, in this order.
func (p *ClassPlan) commands(b *strings.Builder) {
	n := 0
	step := func(what, command string) {
		n++
		fmt.Fprintf(b, "%d. %s\n", n, printable(what))
		for line := range strings.Lines(command) {
			fmt.Fprintf(b, "       %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	b.WriteString("\nSteps, each to be pasted into a shell. Change the same in Git and in charts.\n")
	for _, s := range slices.Concat(p.classSteps(), p.steps) {
		step(s.what, s.command)
	}
	if p.options.Suffix == "" {
		step("Pending claims: nothing. Kubernetes passes them to the new provisioner within a minute", "")
	} else {
		step("Keep the old classes while claims name them: an expansion goes by the claim's class. Then delete them", "")
	}
	step("Stop the old provisioners", "")
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
			all = append(all, classStep{"StorageClass " + c.old.Name + " is no longer the default", "kubectl annotate storageclass " + shell.Quote(c.old.Name) + marks})
		}
	}
	return all
}

// sameName replaces a class, which is immutable, by deleting it. The new one is in a file
// before: if creating fails, the last command is to be repeated.
func (p *ClassPlan) sameName(name string) string {
	word, file, old := shell.Quote(name), shell.Quote("storageclass-"+name+".yaml"), shell.Quote("storageclass-"+name+".old.yaml")
	return strings.Join([]string{
		"kubectl get storageclass " + word + " -o yaml >" + old,
		p.options.Command + " " + word + " -o yaml >" + file,
		"kubectl delete storageclass " + word,
		"kubectl create -f " + file,
	}, " &&\n")
}

// defaultMarks removes the annotations that a class has as the default.
func defaultMarks(c *flexclass.Class) (marks string) {
	for _, key := range []string{flexclass.Default, flexclass.BetaDefault} {
		if c.Annotations[key] == "true" {
			marks += " " + key + "-"
		}
	}
	return marks
}

func quoted(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = shell.Quote(name)
	}
	return strings.Join(all, " ")
}
