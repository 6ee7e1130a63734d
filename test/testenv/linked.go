package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Linked returns the packages that the released program in the test's
// directory links, sorted, and fails t for those that it must not. Each line
// of forbidden is a package path, which stands for the packages below it as
// well, and the reason. The standard library's internal packages are left out:
// they change with each Go version and are not ours to choose.
func Linked(t testing.TB, forbidden string) []string {
	t.Helper()
	return LinkedFor(t, "linux", "amd64", forbidden)
}

// LinkedFor is [Linked] for another platform.
func LinkedFor(t testing.TB, goos, goarch, forbidden string) []string {
	t.Helper()
	Need(t, "prog:go")
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOFLAGS=-buildvcs=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := slices.DeleteFunc(strings.Fields(string(out)), func(pkg string) bool {
		first, _, _ := strings.Cut(pkg, "/")
		standard := !strings.Contains(first, ".")
		return standard && (first == "vendor" || strings.Contains("/"+pkg+"/", "/internal/"))
	})
	slices.Sort(linked)
	for line := range strings.Lines(strings.TrimSpace(forbidden)) {
		bad, why, _ := strings.Cut(line, " ")
		for _, pkg := range linked {
			if pkg == bad || strings.HasPrefix(pkg, bad+"/") {
				t.Errorf("it links %s: %s", pkg, strings.TrimSpace(why))
			}
		}
	}
	return linked
}
