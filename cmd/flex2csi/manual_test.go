package main

import (
	"bytes"
	"cmp"
	"flag"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "make the reference and the man pages anew")

// moreOf are the documents that say more of a command.
var moreOf = map[string]string{
	"serve": "serve.md", "serve --controller": "controller.md", "status": "status.md", "check": "bridge-configuration.md",
	"doctor": "doctor.md", "map": "mapping.md", "preset": "presets.md", "migrate": "migrate.md", "install": "node-install.md", "uninstall": "node-install.md", "ready": "serve.md",
}

// TestManual: docs/reference and man are what the program says of itself. With
// -update (make docs) they are made.
func TestManual(t *testing.T) {
	all := append(everyCommand(), command{name: "serve --controller", summary: "attach volumes for kube-controller-manager, and sweep attachments", flags: new(controllerOptions).flags})
	var pages []manual.Command
	for _, c := range all {
		if c.flags == nil {
			t.Errorf("the command %s does not give its flags to the reference", c.name)
			continue
		}
		var out bytes.Buffer
		set := c.flags(environment{out: &out, err: &out})
		set.Usage()
		parent, _, _ := strings.Cut(c.name, " ")
		pages = append(pages, page("flex2csi "+c.name, c.summary, out.String(), set, cmp.Or(moreOf[c.name], moreOf[parent])))
	}
	var out bytes.Buffer
	if err := help(nil, environment{out: &out}); err != nil {
		t.Fatal(err)
	}
	pages = append(pages, page("flex2csi", "run FlexVolumes on CSI drivers", out.String(), nil, "architecture.md"))
	files, err := manual.Files(pages)
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, "../..", files, *update, "docs/reference/flex2csi*.md", "man/flex2csi*.1")
}

func page(name, summary, usage string, set *pflag.FlagSet, more string) manual.Command {
	return manual.Command{
		Name: name, Summary: summary, Usage: usage, Flags: set, More: more,
		Status: "0 if all went well, 1 if something is wrong, 2 if it was called in a wrong way; standard error says what.",
	}
}
