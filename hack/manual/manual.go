// Package manual makes the reference in docs/reference and the man pages in man
// from what the programs say of themselves, their flag sets and usage, and from
// documents that are of use where there is no browser. Tests of the programs call
// it: only they see the flag sets.
package manual

import (
	"fmt"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/pflag"
)

// A Command is a program, or one of its commands.
type Command struct {
	Name    string // flex2csi serve
	Summary string // half a sentence
	Flags   *pflag.FlagSet
	Usage   string // what --help prints
	Status  string // what the exit status means
	More    string // the document below docs that says more
}

// file is how the files of a command are called, without what makes them one.
func (c *Command) file() string {
	return strings.ReplaceAll(strings.ReplaceAll(c.Name, "--", ""), " ", "-")
}

// Files returns the pages of all commands by their path in the repository.
func Files(commands []Command) (map[string]string, error) {
	files := map[string]string{}
	for i := range commands {
		c := &commands[i]
		synopsis, about, err := c.split()
		if err != nil {
			return nil, err
		}
		files["docs/reference/"+c.file()+".md"] = c.markdown(synopsis, about)
		files["man/"+c.file()+".1"] = string(md2man.Render([]byte(c.man(synopsis, about))))
	}
	return files, nil
}

// split takes apart what --help prints: the line with the usage, and all else but
// the flags and what leads to them.
func (c *Command) split() (synopsis, about string, err error) {
	text := c.Usage
	if c.Flags != nil && c.Flags.HasAvailableFlags() {
		before, after, ok := strings.Cut(text, c.Flags.FlagUsagesWrapped(80))
		if !ok {
			return "", "", fmt.Errorf("the help of %s does not show its flags", c.Name)
		}
		text = before + after
	}
	var rest []string
	for line := range strings.Lines(text) {
		if s, ok := strings.CutPrefix(line, "Usage: "); ok {
			synopsis = strings.TrimSpace(s)
			continue
		}
		rest = append(rest, line)
	}
	if !strings.HasPrefix(synopsis, c.Name) {
		return "", "", fmt.Errorf("the help of %s begins with the usage of %q", c.Name, synopsis)
	}
	return synopsis, withoutLead(strings.Join(rest, "")), nil
}

// withoutLead cuts the line that led to the flags, if there is one.
func withoutLead(text string) string {
	text = strings.TrimSpace(text)
	paragraphs := strings.Split(text, "\n\n")
	if last := paragraphs[len(paragraphs)-1]; strings.HasSuffix(last, ":") && !strings.Contains(last, "\n") {
		paragraphs = paragraphs[:len(paragraphs)-1]
	}
	for i, p := range paragraphs {
		paragraphs[i] = strings.Trim(p, "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

func (c *Command) markdown(synopsis, about string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- Made from the program by make docs. -->\n\n# %s\n\n    %s\n\n%s\n", c.Name, synopsis, prose(about))
	if flags := c.flags(); len(flags) > 0 {
		b.WriteString("\n## Flags\n\n| flag | default | |\n|---|---|---|\n")
		for _, f := range flags {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.markdown(), code(f.byDefault), strings.ReplaceAll(escape(f.usage), "\n", " "))
		}
	}
	fmt.Fprintf(&b, "\n## Exit status\n\n%s\n", escape(c.Status))
	if c.More != "" {
		fmt.Fprintf(&b, "\nMore: [%s](../%s)\n", c.More, c.More)
	}
	return b.String()
}

func (c *Command) man(synopsis, about string) string {
	var b strings.Builder
	b.WriteString(title(c.file(), 1, c.Summary))
	fmt.Fprintf(&b, "## SYNOPSIS\n\n**%s**%s\n\n## DESCRIPTION\n\n%s\n", c.Name, escape(strings.TrimPrefix(synopsis, c.Name)), prose(about))
	if flags := c.flags(); len(flags) > 0 {
		b.WriteString("\n## OPTIONS\n\n")
		for _, f := range flags {
			usage := f.usage
			if f.byDefault != "" {
				usage += " (default: " + f.byDefault + ")"
			}
			fmt.Fprintf(&b, "%s\n:   %s\n\n", f.man(), escape(usage))
		}
	}
	fmt.Fprintf(&b, "## EXIT STATUS\n\n%s\n\n## SEE ALSO\n\n%s\n", escape(c.Status), seeAlso(c.file()))
	return b.String()
}

// title begins a page of the manual.
func title(name string, section int, summary string) string {
	return fmt.Sprintf("# %s %d \"\" \"flex2csi\" \"flex2csi\"\n\n## NAME\n\n%s - %s\n\n", strings.ToUpper(name), section, name, summary)
}

// seeAlso names the other pages that everybody may want.
func seeAlso(not string) string {
	var all []string
	for _, p := range append([]string{"flex2csi(1)", "flexdriver(1)"}, manualOfDocuments()...) {
		if !strings.HasPrefix(p, not+"(") {
			all = append(all, "**"+strings.Replace(p, "(", "**(", 1))
		}
	}
	return strings.Join(all, ", ")
}

// A flag as the pages show it.
type flag struct{ name, short, argument, byDefault, usage string }

// flags are all but the hidden ones, in the order of --help.
func (c *Command) flags() (all []flag) {
	if c.Flags == nil {
		return nil
	}
	c.Flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		argument, usage := pflag.UnquoteUsage(f)
		one := flag{name: f.Name, short: f.Shorthand, argument: argument, usage: usage}
		if f.Value.Type() == "count" {
			one.argument = ""
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			one.byDefault = f.DefValue
		}
		all = append(all, one)
	})
	return all
}

func (f *flag) markdown() string {
	text := code("--" + f.name)
	if f.short != "" {
		text = code("-"+f.short) + ", " + text
	}
	if f.argument != "" {
		text += " *" + f.argument + "*"
	}
	return text
}

func (f *flag) man() string {
	text := "**--" + f.name + "**"
	if f.short != "" {
		text = "**-" + f.short + "**, " + text
	}
	if f.argument != "" {
		text += " *" + f.argument + "*"
	}
	return text
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// prose makes Markdown of what is written for a terminal: indented lines are
// code, all else is text.
func prose(text string) string {
	var out []string
	was := false
	for line := range strings.SplitSeq(text, "\n") {
		is := strings.HasPrefix(line, "  ")
		if is != was && len(out) > 0 && out[len(out)-1] != "" && line != "" {
			out = append(out, "")
		}
		switch {
		case line == "":
		case is:
			line = "    " + strings.TrimPrefix(line, "  ")
		default:
			line = escape(line)
		}
		if line != "" {
			was = is
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// escape takes their meaning from characters that have one in Markdown.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`).Replace(text)
}
