/*
 * The kernel of Debian 12's user-mode-linux (6.1) sets 2,696 bytes of a process's extended
 * registers. Linux takes only all of them (arch/x86/kernel/fpu/regset.c, xstateregs_set), which
 * are more where the processor has AMX, so that there the first program dies and the guest with
 * it. This takes what is missing from the process itself, which has never used it: AMX must be
 * asked for. Loaded by LD_PRELOAD; the kernel's stacks are too small for a local buffer.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char whole[65536] __attribute__((aligned(64)));

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *address = va_arg(args, void *), *data = va_arg(args, void *);
	va_end(args);
	long word;
	switch (request) {
	case PTRACE_SETREGSET:
		if ((long)address == NT_X86_XSTATE) {
			struct iovec *some = data, all = { whole, sizeof whole };
			if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) < 0)
				return -1;
			memcpy(whole, some->iov_base, some->iov_len < all.iov_len ? some->iov_len : all.iov_len);
			return syscall(SYS_ptrace, request, pid, address, &all);
		}
		break;
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER: /* glibc returns the word, the kernel stores it */
		return syscall(SYS_ptrace, request, pid, address, &word) < 0 ? -1 : word;
	default:
		break;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
