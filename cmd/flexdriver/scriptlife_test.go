package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// daemonLines are those of the daemon that are about no volume.
var daemonLines = []string{"loaded the records of the run before", "serving", "draining"}

// attribute is a key and its value, in slog's JSON (not those of a group) and text.
var attribute = regexp.MustCompile(`(?:^|[{,])"(\w+)":("(?:[^"\\]|\\.)*"|\{[^}]*\}|[^,}]*)|(?:^| )([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)`)

// A logLine has the attributes of a line.
type logLine struct {
	text   string
	values map[string]string
	twice  []string
	// mapped: it is the daemon's, and the mapping or the record of the volume is known.
	mapped bool
}

func parseLine(text string) logLine {
	l := logLine{text: text, values: map[string]string{}}
	for _, m := range attribute.FindAllStringSubmatch(text, -1) {
		key := m[1] + m[3]
		if _, known := l.values[key]; known {
			l.twice = append(l.twice, key)
		}
		l.values[key] = strings.Trim(m[2]+m[4], `"`)
	}
	return l
}

// scriptLife verifies the logs of a volume's life: its handle or the ID of a request finds
// each line that is about it, which names the volume and the pod.
func scriptLife(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: life VOLUMEHANDLE LOG...")
	}
	var lines []logLine
	requests := map[string]bool{}
	for _, file := range args[1:] {
		for text := range strings.Lines(ts.ReadFile(file)) {
			l := parseLine(strings.TrimSpace(text))
			if l.values["msg"] == "" || slices.Contains(daemonLines, l.values["msg"]) {
				continue // what is printed for people; see daemonLines
			}
			if file != "flex2csi.log" {
				requests[l.values["request"]] = true
			} else {
				l.mapped = l.values["msg"] != "called"
			}
			lines = append(lines, l)
		}
	}
	seen := map[string]bool{}
	delete(requests, "")
	for _, l := range lines {
		if why := l.lacks(args[0], requests); why != "" {
			ts.Fatalf("%s: %s", why, l.text)
		}
		seen[l.values["msg"]+" "+l.values["command"]+l.values["method"]] = true
	}
	for _, want := range []string{
		"called mount", "answered mount", "called unmount", "answered unmount", "handing over to flex2csi ", "mounted ", "unmounted ",
		"called the CSI driver NodeStageVolume", "called the CSI driver NodeUnstageVolume", "CSI message NodePublishVolume",
	} {
		if !seen[want] {
			ts.Fatalf("no line says %q", want)
		}
	}
}

// lacks returns what is wrong with a line; empty: nothing.
func (l logLine) lacks(handle string, requests map[string]bool) string {
	switch v := l.values; {
	case len(l.twice) > 0:
		return fmt.Sprintf("%v are there twice", l.twice)
	case strings.Contains(l.text, "map["):
		return "there is a Go map"
	case !requests[v["request"]]:
		return "it is of no request that flexdriver knows"
	case v["persistentVolume"] != "data":
		return "it does not name the PersistentVolume"
	case !strings.HasSuffix(v["dir"], "/pods/"+v["podUID"]+"/volumes/example.com~disk/data"):
		return "it does not name the directory"
	case l.mapped && v["volumeHandle"] != handle:
		return "it does not name the volume handle"
	case l.mapped && (v["pod"] != "shop/web-0" || v["namespace"] != "shop"):
		return "it does not name the pod"
	}
	return ""
}
