package sabotage

import "slices"

// A sabotage is something that users rely on, broken on purpose.
type sabotage struct {
	name string
	// scenario is the one that has to fail, and say what is meant by the regular
	// expression want.
	scenario, want string
	// In file, which has old once, new takes its place.
	file, old, new string
	// patches are kustomize's, on what is installed.
	patches string
}

func sabotages() []sabotage {
	return slices.Concat(inSource(), inTakeOver(), inManifests())
}

func inSource() []sabotage {
	return []sabotage{
		{
			name: "false-success", scenario: "life-share", want: "nothing is mounted on",
			file: "internal/lifecycle/mount.go",
			old:  "return all(targetBound, isMounted(TheDir))(s)", new: "return is(true)",
		},
		{
			name: "no-unstage", scenario: "life-share", want: "never called for the reverse of NodeStageVolume|pod .* stays",
			file: "internal/csiclient/node.go",
			old:  "_, err := n.NodeUnstageVolume(ctx, NodeUnstageRequest(handle, stagingPath))\n\t\treturn err", new: "return nil",
		},
		{
			name: "no-detach", scenario: "attachment", want: "the end of the VolumeAttachment: .* is still there",
			file: "internal/kube/detach.go",
			old:  "return op.remove(ctx, o)", new: "return nil",
		},
		{
			name: "unstaged-too-early", scenario: "two-pods", want: "pod a stays",
			file: "internal/lifecycle/unmount.go",
			old:  "applies: all(isLastTarget, not(hasDevice)), tables", new: "applies: not(hasDevice), tables",
		},
		{
			name: "no-fsgroup", scenario: "fsgroup", want: `Permission denied|want "2000`,
			file: "internal/bridge/steps.go",
			old:  "err = b.Mounts.SetGroup(ctx, target(r.Targets[s.Dir], s.Dir), *r.Targets[s.Dir].FSGroup)", new: "err = nil",
		},
		{
			name: "no-growth", scenario: "grow-online", want: "a larger filesystem: .* the filesystem has",
			file: "internal/bridge/steps.go",
			old:  "func (x *execution) nodeExpand(dir string) error {\n",
			new:  "func (x *execution) nodeExpand(dir string) error {\n\tif dir != \"\" {\n\t\treturn nil\n\t}\n",
		},
		{
			name: "secret-in-record", scenario: "secret", want: "has the password in it",
			file: "internal/lifecycle/record.go",
			old:  "t.Pod, t.ReadOnly, t.FSGroup = wanted.Volume.Pod, wanted.Volume.ReadOnly, wanted.Volume.FSGroup",
			new:  "t.Pod, t.ReadOnly, t.FSGroup = wanted.Volume.Pod, wanted.Volume.ReadOnly, wanted.Volume.FSGroup\n\tfor _, s := range wanted.Volume.Secrets.NodeStage {\n\t\tt.LastError += string(s.Reveal())\n\t}",
		},
		{
			name: "anybodys-volumes", scenario: "inline-stranger", want: "event of pod liar",
			file: "internal/drivers/cluster.go",
			old:  "pv, err := verified(ctx, c, cluster, o)", new: "pv, err := cluster.PersistentVolume(ctx, o.VolumeName, false)",
		},
		{
			name: "undiscovered", scenario: "discovered", want: "pod pod does not get ready",
			file: "internal/csiclient/registry.go",
			old:  "return paths\n", new: "return paths[:0]\n",
		},
		{
			name: "no-unmount-alone", scenario: "daemon-missing", want: "pod goes stays",
			file: "internal/handoff/alone.go",
			old:  "if !wire.IsAbsent(err) {\n\t\treturn err\n\t}\n\tb.log()", new: "if err == nil || err != nil {\n\t\treturn err\n\t}\n\tb.log()",
		},
		{
			name: "careless-uninstall", scenario: "uninstall", want: "uninstall does not say that pod",
			file: "internal/install/onnode/use.go",
			old:  "if len(lines) == 0 {\n\t\treturn nil\n\t}\n\tlist", new: "if len(lines) >= 0 {\n\t\treturn nil\n\t}\n\tlist",
		},
		{
			name: "reboot-unnoticed", scenario: "rebooted", want: "is of the last boot|record of e2e-rebooted-",
			file: "internal/bridge/restore.go",
			old:  "if r.BootID != b.BootID {", new: "if r.BootID == \"\" {",
		},
	}
}

// inTakeOver are those of volumes that are migrated under their pods.
func inTakeOver() []sabotage {
	return []sabotage{
		{
			name: "lets-go-of-the-living", scenario: "migrate-killed", want: "calls were|the unmount to be refused",
			file: "internal/lifecycle/unmount.go",
			old:  `return pv.Replaced != "" && pv.Pod != "" && (pv.Gone || !seen.SameFilesystem)`, new: `return pv.Replaced == "never"`,
		},
		{
			// The test driver refuses to unstage what another pod has from the kubelet.
			name: "unstaged-when-handed-over", scenario: "migrate-two-pods", want: "pod b stays|NodeUnstageVolume was done 2 times",
			file: "internal/lifecycle/unmount.go",
			old:  "\treturn s.seesAt(f, holds)\n", new: "\treturn is(holds == nil)\n",
		},
		{
			name: "attached-as-managed", scenario: "migrate-rollback-later", want: "the control plane tried to detach",
			file: "internal/kube/handback.go",
			old:  "if op.owner == objects.AttachedByController {", new: "if op.owner == objects.AttachedByController || op != nil {",
		},
		{
			name: "ends-with-its-terminal", scenario: "migrate-terminal-dropped", want: "ended with its terminal, while there is no PersistentVolume",
			file: "cmd/flex2csi/migrate_run.go",
			old:  "signal.Notify(signals, syscall.SIGHUP)", new: "signal.Reset(syscall.SIGHUP)",
		},
		{
			// As a run that keeps something of each of its events.
			name: "keeps-its-events", scenario: "migrate-job-2000", want: "apply ended with 137",
			file: "internal/migrate/runner.go",
			old:  "e.At = r.Now().UTC()", new: "e.At = r.Now().UTC()\n\tr.Options.Accept = append(r.Options.Accept, string(make([]byte, 256<<10)))",
		},
	}
}

func inManifests() []sabotage {
	return []sabotage{
		{
			name: "no-propagation", scenario: "life-share", want: "nothing is mounted on",
			patches: `
  - target: {kind: DaemonSet, name: flex2csi-node}
    patch: |-
      kind: DaemonSet
      metadata: {name: flex2csi-node}
      spec:
        template:
          spec:
            containers:
              - name: serve
                volumeMounts: [{mountPath: /var/lib/kubelet, name: kubelet-dir, mountPropagation: HostToContainer}]
`,
		},
		{
			name: "no-rights", scenario: "attachment", want: "pod a does not get ready",
			patches: `
  - target: {kind: ClusterRole, name: flex2csi-node}
    patch: |-
      - {op: test, path: /rules/0/resources/0, value: volumeattachments}
      - {op: replace, path: /rules/0/verbs, value: [get, list, watch]}
`,
		},
		{
			name: "no-hand-over", scenario: "upgrade", want: "a call failed|does not listen at",
			patches: `
  - target: {kind: DaemonSet, name: flex2csi-node}
    patch: |-
      - {op: replace, path: /spec/updateStrategy/rollingUpdate, value: {maxSurge: 0, maxUnavailable: 1}}
`,
		},
	}
}
