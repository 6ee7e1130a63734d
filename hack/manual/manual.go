// Package manual makes the reference in docs/reference and the man pages in man:
// of commands with the generator of cobra, and of documents that are of use where
// there is no browser. Tests of the programs call it: only they see the commands.
package manual

import (
	"bytes"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Files returns the pages of a program and of its commands, by their paths in the
// repository.
func Files(program *cobra.Command) (map[string]string, error) {
	files := map[string]string{}
	return files, add(files, program)
}

func add(files map[string]string, c *cobra.Command) error {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	c.DisableAutoGenTag = true // it has the date
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var page, man bytes.Buffer
	page.WriteString("<!-- Made from the program by make manual. -->\n\n")
	if err := doc.GenMarkdownCustom(c, &page, func(link string) string { return strings.ReplaceAll(link, "_", "-") }); err != nil {
		return err
	}
	header := doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: "flex2csi", Manual: "flex2csi", Date: &time.Time{}}
	if err := doc.GenMan(c, &header, &man); err != nil {
		return err
	}
	files["docs/reference/"+name+".md"] = strings.TrimRight(page.String(), "\n") + "\n"
	files["man/"+name+".1"] = strings.Replace(man.String(), header.Date.Format("Jan 2006"), "", 1)
	for _, sub := range c.Commands() {
		if err := add(files, sub); err != nil {
			return err
		}
	}
	return nil
}
