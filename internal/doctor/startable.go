//go:build linux

package doctor

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// startable returns why the kernel would not start a program, without starting it. Paths
// in the program are relative to root.
func startable(path, root string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if n, err := io.ReadFull(f, magic); err != nil {
		return fmt.Errorf("it has %d bytes", n)
	}
	switch {
	case string(magic) == elf.ELFMAG:
		return startableELF(f, root)
	case strings.HasPrefix(string(magic), "#!"):
		return startableScript(f, root)
	}
	return errors.New("it begins neither as a program of this system nor with #! as a script")
}

func startableScript(f *os.File, root string) error {
	const longest = 256 // BINPRM_BUF_SIZE
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(f, longest)).ReadString('\n')
	if err != nil {
		return errors.New("its first line has no end")
	}
	if strings.HasSuffix(line, "\r\n") {
		return errors.New("its lines end as on Windows, so that its interpreter is not found")
	}
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if len(words) == 0 {
		return errors.New("its first line names no interpreter")
	}
	return interpreter(words[0], root)
}

func interpreter(path, root string) error {
	// A link would be followed from our root, not from that of the kubelet.
	if _, err := os.Lstat(filepath.Join(root, path)); err != nil {
		return fmt.Errorf("it wants %s, which is not there", path)
	}
	return nil
}

// machines maps Go's names of processors.
func machines() map[string]elf.Machine {
	return map[string]elf.Machine{
		"386": elf.EM_386, "amd64": elf.EM_X86_64, "arm": elf.EM_ARM, "arm64": elf.EM_AARCH64,
		"ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "riscv64": elf.EM_RISCV, "loong64": elf.EM_LOONGARCH,
	}
}

func startableELF(f *os.File, root string) error {
	file, err := elf.NewFile(f)
	if err != nil {
		return err
	}
	want, known := machines()[runtime.GOARCH]
	// Many kernels run programs for the 32-bit variant of their processor.
	brother := runtime.GOARCH == "amd64" && file.Machine == elf.EM_386 || runtime.GOARCH == "arm64" && file.Machine == elf.EM_ARM
	if known && file.Machine != want && !brother {
		return fmt.Errorf("it was built for %s, and this machine is %s", strings.TrimPrefix(file.Machine.String(), "EM_"), runtime.GOARCH)
	}
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		loader, err := io.ReadAll(p.Open())
		if err != nil {
			return err
		}
		return interpreter(strings.TrimRight(string(loader), "\x00"), root)
	}
	return nil
}
