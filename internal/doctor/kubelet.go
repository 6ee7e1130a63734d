package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// A kubelet is a running one, as its process tells.
type kubelet struct {
	pid int
	// view is where we find the files that it sees: empty, or /proc/<pid>/root.
	view    string
	started time.Time

	rootDir, pluginDir, nodeName string
	// pluginDirFrom says which flag or file it was that named pluginDir.
	pluginDirFrom string
	attachDetach  bool
	// attachDetachFrom is the same for attachDetach.
	attachDetachFrom string
	// files are those of its configuration.
	files []string
}

const procDir = "/proc"

var (
	errNoKubelet   = errors.New("there is no process called kubelet here: run this on the node itself, or in a pod with hostPID: true. (A k3s, k0s or microk8s has the kubelet inside another process.) --volume-plugin-dir and --kubelet-dir, or --kubeconfig, do without it")
	errManyKubelet = errors.New("several kubelets run on this machine")
)

// findKubelet looks for the process, and reads its command line and
// configuration, in the order in which the kubelet itself does
// (cmd/kubelet/app/server.go, NewKubeletCommand: file, drop-ins, flags).
func (p *patient) findKubelet() (*kubelet, error) {
	pid := p.KubeletPID
	if pid == 0 {
		found := processes("kubelet")
		switch {
		case len(found) == 0:
			return nil, errNoKubelet
		case len(found) > 1:
			return nil, fmt.Errorf("%w (%s): choose one with --kubelet-pid", errManyKubelet, strings.Trim(fmt.Sprint(found), "[]"))
		}
		pid = found[0]
	}
	return readKubelet(pid)
}

// processes are those of a name; hyperkube has it as its first argument.
func processes(wanted string) (found []int) {
	entries, err := os.ReadDir(procDir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, err := commandLine(pid)
		if err != nil || len(args) == 0 {
			continue
		}
		name := filepath.Base(args[0])
		if name == wanted || name == "hyperkube" && len(args) > 1 && args[1] == wanted {
			found = append(found, pid)
		}
	}
	return found
}

func commandLine(pid int) ([]string, error) {
	data, err := os.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

func procFile(pid int, name string) string {
	return filepath.Join(procDir, strconv.Itoa(pid), name)
}

// processStart is when a process was started; zero if that cannot be told. Its
// directory in /proc does not tell.
func processStart(pid int) time.Time {
	const startTime, ticks = 19, 100 // proc_pid_stat(5): the 22nd field; USER_HZ
	stat, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return time.Time{}
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may have spaces in it
	fields := strings.Fields(rest)
	uptime, err := os.ReadFile(filepath.Join(procDir, "uptime"))
	if err != nil || len(fields) <= startTime {
		return time.Time{}
	}
	up, err1 := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	start, err2 := strconv.ParseFloat(fields[startTime], 64)
	if err1 != nil || err2 != nil {
		return time.Time{}
	}
	age := time.Duration((up - start/ticks) * float64(time.Second))
	return time.Now().Add(-age)
}

func readKubelet(pid int) (*kubelet, error) {
	args, err := commandLine(pid)
	if err != nil {
		return nil, fmt.Errorf("read the command line of process %d: %w", pid, err)
	}
	k := &kubelet{pid: pid, rootDir: defaultKubeletDir, pluginDir: defaultPluginDir, pluginDirFrom: "the default", attachDetach: true, attachDetachFrom: "the default"}
	if !sameMounts(pid) {
		k.view = procFile(pid, "root")
	}
	k.started = processStart(pid)
	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	config := flags.String("config", "", "")
	dropIns := flags.String("config-dir", "", "")
	rootDir := flags.String("root-dir", k.rootDir, "")
	pluginDir := flags.String("volume-plugin-dir", "", "")
	attachDetach := flags.Bool("enable-controller-attach-detach", true, "")
	flags.StringVar(&k.nodeName, "hostname-override", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return nil, fmt.Errorf("read the command line of the kubelet (process %d): %w", pid, err)
	}
	k.rootDir = filepath.Clean(*rootDir)
	if err := k.readFiles(*config, *dropIns); err != nil {
		return nil, err
	}
	if *pluginDir != "" {
		k.pluginDir, k.pluginDirFrom = *pluginDir, "its flag --volume-plugin-dir"
	}
	if flags.Changed("enable-controller-attach-detach") {
		k.attachDetach, k.attachDetachFrom = *attachDetach, "its flag --enable-controller-attach-detach"
	}
	k.pluginDir = filepath.Clean(k.pluginDir)
	return k, nil
}

// sameMounts tells whether a process sees the mounts that we see; if that cannot
// be told it is taken for granted.
func sameMounts(pid int) bool {
	ours, err1 := os.Readlink(filepath.Join(procDir, "self/ns/mnt"))
	theirs, err2 := mountNamespace(pid)
	return err1 != nil || err2 != nil || ours == theirs
}

func mountNamespace(pid int) (string, error) { return os.Readlink(procFile(pid, "ns/mnt")) }

// readFiles reads the configuration file and the drop-ins, of which later ones
// win (cmd/kubelet/app/server.go, mergeKubeletConfigurations).
func (k *kubelet) readFiles(config, dropIns string) error {
	if config != "" {
		k.files = append(k.files, k.absolute(config))
	}
	if dropIns != "" {
		found, err := dropInFiles(k.view + k.absolute(dropIns))
		if err != nil {
			return fmt.Errorf("read the kubelet's --config-dir: %w", err)
		}
		for _, f := range found {
			k.files = append(k.files, strings.TrimPrefix(f, k.view))
		}
	}
	for _, file := range k.files {
		if err := k.readFile(file); err != nil {
			return fmt.Errorf("read the kubelet's configuration: %w", err)
		}
	}
	return nil
}

// absolute: relative paths start at the kubelet's working directory.
func (k *kubelet) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	dir, _ := os.Readlink(procFile(k.pid, "cwd")) // daemons have /
	return filepath.Join(cmp.Or(dir, "/"), path)
}

// dropInFiles are those that the kubelet reads, in its order.
func dropInFiles(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	slices.Sort(files)
	return files, err
}

const maxKubeletConfig = 1 << 20

func (k *kubelet) readFile(path string) error {
	info, err := os.Stat(k.view + path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxKubeletConfig) {
		err = fmt.Errorf("%s is no configuration file", path)
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(k.view + path)
	if err != nil {
		return err
	}
	var c struct {
		VolumePluginDir              string `yaml:"volumePluginDir"`
		EnableControllerAttachDetach *bool  `yaml:"enableControllerAttachDetach"`
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.VolumePluginDir != "" {
		k.pluginDir, k.pluginDirFrom = c.VolumePluginDir, "volumePluginDir in "+path
	}
	if c.EnableControllerAttachDetach != nil {
		k.attachDetach, k.attachDetachFrom = *c.EnableControllerAttachDetach, "enableControllerAttachDetach in "+path
	}
	return nil
}

// changedSince are the files of its configuration that are newer than itself.
func (k *kubelet) changedSince() (files []string) {
	for _, file := range k.files {
		if info, err := os.Stat(k.view + file); err == nil && !k.started.IsZero() && info.ModTime().After(k.started.Add(2*time.Second)) {
			files = append(files, file)
		}
	}
	return files
}
