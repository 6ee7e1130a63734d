package sabotage

import "slices"

// The files that have the checks.
const (
	check     = "internal/local/check.go"
	permit    = "internal/local/permit.go"
	setup     = "internal/local/setup.go"
	rootOnly  = "pkg/mounter/rootonly.go"
	bind      = "pkg/mounter/bind.go"
	elsewhere = "pkg/mounter/elsewhere.go"
	walk      = "pkg/mounter/walk.go"
	redact    = "pkg/flex/redact.go"
	program   = "pkg/flex/program.go"
	child     = "pkg/mounter/child.go"
	openers   = "pkg/mounter/openers.go"
	mark      = "pkg/mounter/mark.go"
	probe     = "pkg/mounter/probe.go"
	helper    = "pkg/mounter/helper.go"
	names     = "internal/local/devicename.go"
	parse     = "internal/local/parse.go"
	space     = "internal/local/room.go"
	attaching = "internal/local/attach.go"
	way       = "internal/hostfile/way.go"
	roots     = "pkg/mounter/roots.go"
	load      = "internal/driverconfig/load.go"
	logging   = "pkg/flex/log.go"
)

func sabotages() []sabotage {
	return slices.Concat(places(), disks(), storage(), control(), options(), surroundings(), credentials())
}

// places are about where volumes may be.
func places() []sabotage {
	return []sabotage{
		{
			// One of the paths is on a filesystem that does not answer.
			name: "no-roots-is-anywhere", want: "(binds|opens|changes|mounts|attaches) |late: true",
			edits: []edit{
				{permit, "\tif len(roots) == 0 {\n", "\tif len(roots) == 0 {\n\t\treturn \"/\", nil\n\t}\n\tif len(roots) == 0 {\n"},
				{permit, "case namespace != \"\" && namespace != owner:", "case owner == \"-\":"},
				{rootOnly, "\treturn nil, outside(roots)\n", "\tif len(roots) == 0 {\n\t\treturn os.OpenFile(path, unix.O_PATH, 0)\n\t}\n\treturn nil, outside(roots)\n"},
				{bind, "\treturn nil, outside(roots)\n", "\tif len(roots) == 0 {\n\t\treturn os.OpenFile(path, unix.O_PATH, 0)\n\t}\n\treturn nil, outside(roots)\n"},
			},
		},
		{
			name: "links-to-images", want: "(opens|attaches|would write) ",
			edits: []edit{
				{rootOnly, "unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC", "unix.O_PATH|unix.O_CLOEXEC"},
			},
		},
		{
			name: "links-to-directories", want: "(binds|answer tells whether) ",
			edits: []edit{{bind, "openBeneath(opened, rel, unix.RESOLVE_BENEATH)", "openBeneath(opened, rel, 0)"}},
		},
		{
			name: "fsgroup-by-links", want: "(changes|opens) ",
			edits: []edit{
				{walk, "const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC", "const flags = unix.O_PATH | unix.O_CLOEXEC"},
				{walk, "Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}", "Resolve: 0}"},
			},
		},
		{
			name: "any-source-type", want: "of type|executes",
			edits: []edit{{permit, "if slices.Contains(b.SourceTypes, v.FSType) {", "if slices.Contains(b.SourceTypes, v.FSType) || v != nil {"}},
		},
		{
			name: "any-namespace", want: "W/roots/images/team-b",
			edits: []edit{{permit, "case namespace != \"\" && namespace != owner:", "case owner == \"-\":"}},
		},
		{
			name: "images-at-the-device-path", want: "attaches W/roots/images",
			edits: []edit{
				{setup, "\tif v.Kind != kindDevice {\n", "\tif !v.isDisk() {\n"},
				{permit, "\tif v.Kind != kindImage || o.PodNamespace != \"\" {\n", "\tif v != nil {\n"},
			},
		},
		{
			name: "disks-of-the-node", want: `(mounts|opens the device) .*/host/mounted.img`,
			edits: []edit{{elsewhere, "case !allowed(i.Mountpoint):", "case allowed == nil:"}},
		},
		{
			name: "any-size", want: "with the size|bytes long",
			edits: []edit{{permit, "if size <= b.MaxSize {", "if size <= b.MaxSize || b != nil {"}},
		},
	}
}

// options are about what is given to mount.
func options() []sabotage {
	return []sabotage{
		{
			name: "any-mount-option", want: "with the option|with the size|binds|propagation|mounts|calls",
			edits: []edit{{check, "faults = append(faults, allow.Mount(list, formed)...)", "faults = append(faults, allow.Mount(list, nil)...)"}},
		},
		{
			name: "any-source", want: "for the source|executes|for another mount point", // a source may read as an option
			edits: []edit{{check, "if fault := allow.Source(v.FSType, v.Source); fault != \"\" {", "if fault := allow.Source(v.FSType, v.Source); fault == \"-\" {"}},
		},
	}
}

// surroundings are about what programs find when they are run.
func surroundings() []sabotage {
	return []sabotage{
		{
			name: "directory-inherited", want: "has the working directory /, which is not empty",
			edits: []edit{{child, "cmd.Dir = fmt.Sprintf(\"/proc/self/fd/%d\", dir.Fd())", "cmd.Dir = fmt.Sprintf(\"/%.0d\", 0*dir.Fd())"}},
		},
		{
			name: "path-inherited", want: "has PATH=.* in its environment",
			edits: []edit{{child, "cmd.Env = childEnvironment()", "cmd.Env = append(childEnvironment(), \"PATH=\"+os.Getenv(\"PATH\"))"}},
		},
		{
			name: "secrets-in-arguments", want: "has the secret .* among its arguments",
			edits: []edit{{program, "guard.HideArgs(in.Args[1:])...)", "append(guard.HideArgs(nil), in.Args[1:]...)...)"}},
		},
		{
			name: "secrets-in-answers", want: "answer has the secret",
			edits: []edit{
				{
					setup, "func (b *Backend) mount(ctx context.Context, c *flex.Call) error {\n\tv, err := parseVolume(c.Options)\n\tif err != nil {\n\t\treturn err\n",
					"func (b *Backend) mount(ctx context.Context, c *flex.Call) error {\n\tv, err := parseVolume(c.Options)\n\tif err != nil {\n\t\treturn flex.Errorf(flex.CodeInternal, \"%s: %w\", c.Options.Secrets[\"password\"].Reveal(), err)\n",
				},
				{redact, "\t\ts.Message = r.Redact(s.Message)\n", ""},
			},
		},
		{
			name: "environment-inherited", want: "in its environment",
			edits: []edit{{child, "cmd.Env = childEnvironment()", "cmd.Env = append(os.Environ(), childEnvironment()...)"}},
		},
	}
}
