/* SPDX-License-Identifier: MIT
 *
 * stub.c: the code that is copied into the process.  Called by inject.c, runs there.
 *
 * The borrowed thread runs gp_stub_begin: it starts a thread and goes back, which takes some ten
 * microseconds.  Everything that may take long or may have to wait for a lock of the program's is
 * done by the new thread, gp_stub_worker.  So the program's thread never waits for the loader.
 *
 * The worker unmaps the memory that it runs in as the last thing: it jumps to munmap, which returns to
 * the worker's caller.  Its waits are bounded, so that it also ends if this command is killed.  Then the
 * memory stays mapped, unless the borrowed thread has said that it is gone.
 */
#include <attach/stub.h>
#include <stddef.h>

#define GP_STUB_AT(_member, _offset)                                                                                   \
    _Static_assert(offsetof(struct gp_stub_data, _member) == (_offset), "the code below knows this offset")

GP_STUB_AT(order, 0x00);
GP_STUB_AT(state, 0x04);
GP_STUB_AT(pthread_create, 0x08);
GP_STUB_AT(pthread_detach, 0x10);
GP_STUB_AT(errno_location, 0x18);
GP_STUB_AT(dlopen, 0x20);
GP_STUB_AT(dlsym, 0x28);
GP_STUB_AT(dlerror, 0x30);
GP_STUB_AT(munmap, 0x38);
GP_STUB_AT(region, 0x40);
GP_STUB_AT(region_bytes, 0x48);
GP_STUB_AT(entry, 0x50);
GP_STUB_AT(handle, 0x58);
GP_STUB_AT(thread, 0x60);
GP_STUB_AT(created, 0x68);
GP_STUB_AT(result, 0x6c);
GP_STUB_AT(fd, 0x70);
GP_STUB_AT(tid, 0x74);
GP_STUB_AT(worker, 0x78);
GP_STUB_AT(frame, 0x80);
GP_STUB_AT(symbol, 0x88);
GP_STUB_AT(comm, 0xa8);
GP_STUB_AT(file, 0xb8);
GP_STUB_AT(path, 0xd8);
GP_STUB_AT(error, 0x108);
GP_STUB_AT(settings, 0x308);
GP_STUB_AT(spins, 0xd08);
GP_STUB_AT(gone, 0xd0c);
_Static_assert(sizeof(struct gp_stub_data) <= 4096, "one page");

#if defined(__x86_64__)
/* Register rbx has the address of struct gp_stub_data in both. */
__asm__(".pushsection .rodata\n"
        ".globl gp_stub_begin, gp_stub_worker, gp_stub_end\n"
        "gp_stub_begin:\n"
        "    call *0x18(%rbx)\n" /* errno of the borrowed thread */
        "    mov %rax, %r12\n"
        "    mov (%rax), %r13d\n"
        "    lea 0x60(%rbx), %rdi\n"
        "    xor %esi, %esi\n"
        "    mov 0x78(%rbx), %rdx\n"
        "    mov %rbx, %rcx\n"
        "    call *0x08(%rbx)\n" /* pthread_create */
        "    mov %eax, %r14d\n"
        "    test %eax, %eax\n"
        "    jnz 1f\n"
        "    mov 0x60(%rbx), %rdi\n"
        "    call *0x10(%rbx)\n" /* pthread_detach */
        "1:  mov %r13d, (%r12)\n"
        "    push $-1\n"      /* no handler runs from now on, so the thread can be taken back */
        "    mov $14, %eax\n" /* rt_sigprocmask(SIG_SETMASK); the kernel keeps SIGKILL and SIGSTOP out */
        "    mov $2, %edi\n"
        "    mov %rsp, %rsi\n"
        "    xor %edx, %edx\n"
        "    mov $8, %r10d\n"
        "    syscall\n"
        "    mov %r14d, 0x68(%rbx)\n" /* this command sees it and takes the thread back */
        "    mov 0xd08(%rbx), %r15d\n"
        "2:  pause\n" /* a sleep would overwrite what the kernel keeps of the interrupted one */
        "    dec %r15d\n"
        "    jnz 2b\n"
        "    mov 0x80(%rbx), %rsp\n" /* this command is gone, so the thread goes back by itself */
        "    movl $1, 0xd0c(%rbx)\n"
        "    ret\n"

        "gp_stub_worker:\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    mov %rdi, %rbx\n"
        "    mov $0xfffffffe3ffffb27, %rax\n" /* as seize.c, less the two that setuid waits for */
        "    push %rax\n"
        "    mov $14, %eax\n" /* rt_sigprocmask(SIG_SETMASK) */
        "    mov $2, %edi\n"
        "    mov %rsp, %rsi\n"
        "    xor %edx, %edx\n"
        "    mov $8, %r10d\n"
        "    syscall\n"
        "    pop %rax\n"
        "    mov $186, %eax\n" /* gettid */
        "    syscall\n"
        "    mov %eax, 0x74(%rbx)\n"
        "    mov $157, %eax\n" /* prctl(PR_SET_NAME) */
        "    mov $15, %edi\n"
        "    lea 0xa8(%rbx), %rsi\n"
        "    xor %edx, %edx\n"
        "    xor %r10d, %r10d\n"
        "    xor %r8d, %r8d\n"
        "    syscall\n"
        "    movl $-1, 0x70(%rbx)\n"
        "    cmpq $0, 0x50(%rbx)\n"
        "    jne 4f\n"
        "    mov $319, %eax\n" /* memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) */
        "    lea 0xb8(%rbx), %rdi\n"
        "    mov $3, %esi\n"
        "    syscall\n"
        "    mov %eax, 0x70(%rbx)\n"
        "    movl $1, 0x04(%rbx)\n"
        "    mov $20000, %r13d\n" /* 20 s: copying the file takes milliseconds */
        "2:  cmpl $0, 0x00(%rbx)\n"
        "    jne 3f\n"
        "    call 20f\n"
        "    dec %r13d\n"
        "    jnz 2b\n"
        "    mov $5, %r12d\n"
        "    jmp 6f\n"
        "3:  mov $5, %r12d\n"
        "    cmpl $1, 0x00(%rbx)\n"
        "    jne 6f\n"
        "    movl $2, 0x04(%rbx)\n"
        "    lea 0xd8(%rbx), %rdi\n"
        "    mov $2, %esi\n" /* RTLD_NOW */
        "    call *0x20(%rbx)\n"
        "    mov %rax, 0x58(%rbx)\n"
        "    test %rax, %rax\n"
        "    jz 5f\n"
        "    mov %rax, %rdi\n"
        "    lea 0x88(%rbx), %rsi\n"
        "    call *0x28(%rbx)\n"
        "    mov %rax, 0x50(%rbx)\n"
        "    test %rax, %rax\n"
        "    jz 5f\n"
        "4:  movl $3, 0x04(%rbx)\n"
        "    lea 0x308(%rbx), %rdi\n"
        "    call *0x50(%rbx)\n"
        "    mov %eax, 0x6c(%rbx)\n"
        "    mov $4, %r12d\n"
        "    jmp 6f\n"
        "5:  call *0x30(%rbx)\n" /* dlerror's text belongs to this thread: copy it */
        "    mov $5, %r12d\n"
        "    test %rax, %rax\n"
        "    jz 6f\n"
        "    lea 0x108(%rbx), %rdi\n"
        "    mov $511, %ecx\n"
        "7:  mov (%rax), %dl\n"
        "    mov %dl, (%rdi)\n"
        "    inc %rax\n"
        "    inc %rdi\n"
        "    test %dl, %dl\n"
        "    jz 6f\n"
        "    dec %ecx\n"
        "    jnz 7b\n"
        "6:  mov 0x70(%rbx), %edi\n"
        "    test %edi, %edi\n"
        "    js 8f\n"
        "    mov $3, %eax\n" /* close: the mapping keeps the file */
        "    syscall\n"
        "8:  mov %r12d, 0x04(%rbx)\n"
        "    mov $5000, %r13d\n"
        "9:  cmpl $2, 0x00(%rbx)\n"
        "    je 10f\n"
        "    call 20f\n"
        "    dec %r13d\n"
        "    jnz 9b\n"
        "    cmpl $1, 0xd0c(%rbx)\n" /* this command is gone; the borrowed thread may still be in here */
        "    je 10f\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    ret\n"
        "10: mov 0x40(%rbx), %rdi\n"
        "    mov 0x48(%rbx), %rsi\n"
        "    mov 0x38(%rbx), %rax\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    jmp *%rax\n"

        "20: sub $24, %rsp\n" /* sleeps for a millisecond */
        "    movq $0, (%rsp)\n"
        "    movq $1000000, 8(%rsp)\n"
        "    mov %rsp, %rdi\n"
        "    xor %esi, %esi\n"
        "    mov $35, %eax\n"
        "    syscall\n"
        "    add $24, %rsp\n"
        "    ret\n"
        "gp_stub_end:\n"
        ".popsection\n");
#else
const char gp_stub_begin[1], gp_stub_worker[1], gp_stub_end[1];
#endif
