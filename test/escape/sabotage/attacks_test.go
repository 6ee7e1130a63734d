package sabotage

// disks are about those that something else uses, or that are not the attacker's.
func disks() []sabotage {
	return []sabotage{
		{
			name: "disks-of-loop-devices", want: "C/looped.img",
			edits: []edit{{elsewhere, "showsDevice(l) && f[l.Rdevice] != \"\"", "showsDevice(l) && f[l.Rdevice] == \"-\""}},
		},
		{
			name: "disks-of-programs", want: "C/opened.img",
			edits: []edit{{openers, "s.family[number] != \"\", err", "s.family[number] == \"-\", err"}},
		},
		{
			name: "disks-of-containers", want: "C/contained.img",
			edits: []edit{{openers, "if s.isNode(i) || namespace == own", "if s.isNode(i) || namespace == \"-\""}, {openers, "own, _ := os.Readlink(\"/proc/thread-self/ns/mnt\")\n", ""}},
		},
		{
			name: "disks-with-raw-data", want: "C/raw.img",
			edits: []edit{{mark, "case at < 0 || formatting.on(device):", "case at < 0 || device != \"\":"}},
		},
		{
			name: "disks-by-label", want: `(looks for a disk by what its owner calls it|.*\.attached-)`,
			edits: []edit{
				{names, "case \"UUID\", \"PARTUUID\":", "case \"UUID\", \"PARTUUID\", \"LABEL\", \"PARTLABEL\":"},
				{names, "case \"LABEL\", \"PARTLABEL\":", "case \"-\":"},
			},
		},
		{
			name: "disks-by-udev-links", want: "C/labelled.img",
			edits: []edit{{names, "found && isContentName(name)", "found && isContentName(name) && name == \"\""}},
		},
		{
			name: "disks-with-one-uuid", want: "C/twin-[12].img",
			edits: []edit{{probe, "case err == nil && len(devices) == 1:", "case err == nil && len(devices) > 0:"}},
		},
	}
}

// storage is about how much of the node images take.
func storage() []sabotage {
	return []sabotage{
		{
			name: "unknown-options", want: "flexdriver takes the option ",
			edits: []edit{{parse, "if !slices.Contains(allowed, name) {", "if name == \"-\" {"}},
		},
		{
			name: "reserve-of-the-node", want: "makes W/roots/images/team-a/.* bytes long, which may have 629145600",
			edits: []edit{{space, "if total > 0 && free-all.promised-more < total/reserve {", "if total < 0 {"}},
		},
		{
			name: "any-bytes-of-a-namespace", want: "makes W/roots/images/team-a/.* bytes long, which may have 419430400",
			edits: []edit{{space, "case size > b.MaxSizePerNamespace:", "case size < 0:"}},
		},
		{
			name: "any-images-of-a-namespace", want: "makes W/roots/images/team-c, one image more",
			edits: []edit{{space, "case images > 0 && all.images >= b.MaxImagesPerNamespace:", "case images < 0:"}},
		},
	}
}

// control is about what has a say: locks, configurations, and answers.
func control() []sabotage {
	return []sabotage{
		{
			name: "locks-of-anything", want: `.*\.attached-`,
			edits: []edit{{permit, "\tif !v.isDisk() {\n\t\treturn nil\n\t}\n", "\tif v != nil {\n\t\treturn nil\n\t}\n"}},
		},
		{
			name: "configurations-of-any-mode", want: `flexdriver obeys a configuration that others can write to \((mode|directory)\)`,
			edits: []edit{{load, "case st.Mode&0o022 != 0:", "case st.Mode == 0:"}},
		},
		{
			name: "configurations-of-any-user", want: `flexdriver obeys a configuration that others can write to \(owner\)`,
			edits: []edit{{load, "case st.Uid != 0 && int(st.Uid) != unix.Geteuid():", "case st.Mode == 0:"}},
		},
		{
			name: "configurations-in-any-directory", want: `flexdriver obeys a configuration that others can write to \(directory\)`,
			edits: []edit{{load, "if err := trustedWay(path); err != nil {", "if err := trustedWay(\"/\"); err != nil {"}},
		},
		{
			name: "roots-below-directories-of-others", want: "W/other|C/labelled.img|uses a root that another user can replace",
			edits: []edit{{way, "case !isOurs(above.Uid):", "case above.Mode == 0:"}},
		},
		{
			name: "roots-behind-links-of-others", want: "uses a root that another user can replace",
			edits: []edit{{way, "case (link || above.Mode&0o022 != 0) && !isOurs(st.Uid):", "case link && above.Mode == 0:"}},
		},
		{
			name: "roots-that-show-images", want: "binds W/roots",
			edits: []edit{{roots, "if slices.ContainsFunc(own, p.nested) {", "if slices.ContainsFunc(own[:0], p.nested) {"}},
		},
		{
			name: "roots-that-look-apart", want: "binds W/roots",
			edits: []edit{{roots, "return err == nil && apart ||", "return err == nil && (apart || path != \"\") ||"}},
		},
		{
			name: "images-that-exist", want: "answer tells whether W/roots/images",
			edits: []edit{{
				attaching, "\tcase kindImage:\n\t\treturn v.Source, nil\n",
				"\tcase kindImage:\n\t\timage, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.images())\n\t\tif err == nil {\n\t\t\timage.Close()\n\t\t}\n\t\treturn v.Source, err\n",
			}},
		},
	}
}

// credentials are about where the content of a Secret may be.
func credentials() []sabotage {
	return []sabotage{
		{
			name: "credentials-in-arguments", want: "has the secret .* among its arguments",
			edits: []edit{{helper, "s.options = append(s.options, option+\"=\"+path)", "s.options = append(s.options, option+\"=\"+path, \"password=\"+string(credentials[option]))"}},
		},
		{
			name: "credentials-in-answers", want: "answer has the secret",
			edits: []edit{{redact, "\t\ts.Message = r.Redact(s.Message)\n", ""}},
		},
		{
			name: "credentials-in-logs", want: "W/run/log has the secret",
			edits: []edit{
				{logging, "redact := NewRedactor(call.Options).Redact", "redact := NewRedactor(Options{}).Redact"},
				{setup, "\t\tp.Discard()\n", "\t\tp.Discard()\n\t\tb.log().Warn(\"mount\", \"error\", err)\n"},
			},
		},
		{
			name: "credentials-in-files", want: "opens for writing|would write to",
			edits: []edit{{helper, "unix.MemfdCreate(\"credentials\", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)", "unix.Open(\"/run/credentials\", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)"}},
		},
		{
			name: "credentials-in-state", want: ".*/\\.attached-.* has the secret",
			edits: []edit{{
				setup, "\tif err := requireNamespace(v, c.Options); err != nil {\n",
				"\t_ = os.WriteFile(string(b.AttachLocks)+\"/.attached-lock\", c.Options.Secrets[\"password\"].Reveal(), 0o600)\n\tif err := requireNamespace(v, c.Options); err != nil {\n",
			}},
		},
	}
}
