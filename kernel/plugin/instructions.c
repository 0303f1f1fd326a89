/* A plugin for QEMU's emulation of one CPU: counts the instructions that a guest executes between
   two marks of its program.

   Each time the guest executes the mark, the counts so far are a line of the file `out=`: the
   instructions of the kernel, the further iterations of its string instructions, and the
   instructions of programs. QEMU executes each iteration of `rep stosb` as an instruction; a CPU
   counts all of them as one (Intel SDM vol. 3B, event INST_RETIRED), and so does this plugin.

   With `profile=`, each block of the kernel's code that was executed since the mark before is a
   line of that file after a line `mark`: address, length in instructions, executions.

   Blocks are counted when they begin, so an exception within a block counts its rest too. Not
   guaranteed: more than one CPU; QEMU from 9.0 on, whose plugins have another interface. Declared
   here is the part that is used; Debian 12 ships no header. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*cb)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *counter, uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, void (*cb)(unsigned cpu, void *), int flags, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

#define INLINE_ADD_U64 0
/* The upper half of the address space is the kernel's, on both machines and in both kernels. */
#define IS_KERNEL(address) ((address) >> 63)

/* The mark of kernel/programs/instructions.c: `hint #112`, or a no-operation with a displacement
   that no compiler chooses. */
#define MARK_ARM (0xd503201f | 112 << 5)
static const uint8_t mark_x86[] = { 0x0f, 0x1f, 0x80, 'p', 'w', 'i', 'n' };

static uint64_t kernel, string, user;
static FILE *out, *profile;

/* The executions of the blocks of the kernel's code with the same address and length. */
struct block {
    struct block *next;
    uint64_t address, instructions, executed, reported;
};
#define BUCKETS 65536
static struct block *blocks[BUCKETS];

static struct block *block_at(uint64_t address, uint64_t instructions)
{
    struct block **bucket = &blocks[(address ^ address >> 16) % BUCKETS], *block;

    for (block = *bucket; block; block = block->next)
        if (block->address == address && block->instructions == instructions)
            return block;
    block = calloc(1, sizeof *block);
    if (!block)
        abort();
    block->address = address;
    block->instructions = instructions;
    block->next = *bucket;
    return *bucket = block;
}

static void print_profile(void)
{
    fputs("mark\n", profile);
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct block *block = blocks[i]; block; block = block->next) {
            uint64_t executed = block->executed - block->reported;

            block->reported = block->executed;
            if (executed)
                fprintf(profile, "%llx %llu %llu\n", (unsigned long long)block->address, (unsigned long long)block->instructions, (unsigned long long)executed);
        }
    fflush(profile);
}

static void marked(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    fprintf(out, "mark kernel=%llu string=%llu user=%llu\n", (unsigned long long)kernel, (unsigned long long)string, (unsigned long long)user);
    fflush(out);
    if (profile)
        print_profile();
}

static int is_mark(const uint8_t *bytes, size_t size)
{
    uint32_t word;

    if (size == sizeof mark_x86)
        return memcmp(bytes, mark_x86, size) == 0;
    if (size != sizeof word)
        return 0;
    memcpy(&word, bytes, sizeof word);
    return word == MARK_ARM;
}

/* MOVS, STOS, CMPS, LODS or SCAS with a repeat prefix: two or three bytes, where arm64 has four. */
static int repeats(const uint8_t *bytes, size_t size)
{
    size_t at = 1;

    if (size < 2 || (bytes[0] != 0xf3 && bytes[0] != 0xf2))
        return 0;
    at += (bytes[at] & 0xf0) == 0x40;
    if (at + 1 != size)
        return 0;
    return (bytes[at] >= 0xa4 && bytes[at] <= 0xa7) || (bytes[at] >= 0xaa && bytes[at] <= 0xaf);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    uint64_t address = qemu_plugin_tb_vaddr(tb), count = qemu_plugin_tb_n_insns(tb);
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);

    (void)id;
    if (IS_KERNEL(address)) {
        /* Each further iteration is a block of its own. */
        if (repeats(qemu_plugin_insn_data(first), qemu_plugin_insn_size(first))) {
            qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &string, 1);
        } else {
            qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &kernel, count);
            if (profile)
                qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &block_at(address, count)->executed, 1);
        }
        return;
    }
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &user, count);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

        if (is_mark(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn)))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, 0, 0);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const struct qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0)
            out = fopen(argv[i] + 4, "w");
        else if (strncmp(argv[i], "profile=", 8) == 0 && !(profile = fopen(argv[i] + 8, "w")))
            return 1;
    }
    if (!out)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
