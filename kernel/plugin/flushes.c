/* A plugin for QEMU's emulation of arm64: counts the barriers and TLB invalidations that a guest executes.

   Each time the guest executes `hint #112` the counts so far are a line of the file `out=`. A barrier waits if its CPU has issued an invalidation since its
   last one: that is what a flush costs, whoever it is for. Arm ARM C5.1.3 (DSB), C5.5 (TLBI: SYS with CRn 8).

   Not guaranteed: QEMU from 9.0 on, whose plugins have another interface. Declared here is the part that is used; Debian 12 ships no header. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info_t;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*cb)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, void (*cb)(unsigned cpu, void *), int flags, void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

#define CPUS 256
#define MARK (0xd503201f | 112 << 5)

enum what { DSB_ISH, DSB_ISHST, DSB_OTHER, TLBI_PAGE, TLBI_RANGE, TLBI_SPACE, TLBI_OTHER, WAITS, KINDS, NOTHING };

static const char *const names[KINDS] = {
    "dsb_ish", "dsb_ishst", "dsb_other", "tlbi_page", "tlbi_range", "tlbi_space", "tlbi_other", "waits",
};
static uint64_t counts[KINDS];
/* Invalidations that a CPU has issued since it last waited. Each CPU has its own. */
static uint32_t outstanding[CPUS];
static FILE *out;

static enum what dsb(uint32_t word)
{
    switch (word >> 8 & 15) {
    case 11: return DSB_ISH;
    case 10: return DSB_ISHST;
    default: return DSB_OTHER;
    }
}

static enum what tlbi(uint32_t word)
{
    unsigned crm = word >> 8 & 15, op = word >> 5 & 7;
    int range = crm == 2 || crm == 5 || crm == 6;

    if ((word >> 16 & 7) != 0)
        return TLBI_OTHER;
    if (op & 1)
        return range ? TLBI_RANGE : TLBI_PAGE;
    return op == 2 ? TLBI_SPACE : TLBI_OTHER;
}

static enum what classify(uint32_t word)
{
    /* CRm 0 and 4 are other barriers: SSBB, PSSBB. */
    if ((word & 0xfffff0ff) == 0xd503309f && (word >> 8 & 11))
        return dsb(word);
    if ((word & 0xfff8f000) == 0xd5088000)
        return tlbi(word);
    return NOTHING;
}

/* Whether it waits for loads too, and so for invalidations: those for stores only do not (Arm ARM D8.14.5). */
static int completes(uint32_t word)
{
    return (word >> 8 & 3) == 3;
}

static void count(enum what what)
{
    __atomic_fetch_add(&counts[what], 1, __ATOMIC_RELAXED);
}

static void executed(unsigned cpu, void *data)
{
    uint32_t word = (uint32_t)(uintptr_t)data;
    enum what what = classify(word);

    count(what);
    if (what >= TLBI_PAGE) {
        outstanding[cpu % CPUS]++;
    } else if (completes(word) && outstanding[cpu % CPUS]) {
        outstanding[cpu % CPUS] = 0;
        count(WAITS);
    }
}

static void marked(unsigned cpu, void *data)
{
    (void)cpu, (void)data;
    fputs("mark", out);
    for (int i = 0; i < KINDS; i++)
        fprintf(out, " %s=%llu", names[i], (unsigned long long)__atomic_load_n(&counts[i], __ATOMIC_RELAXED));
    fputc('\n', out);
    fflush(out);
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint32_t word;

        memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
        if (word == MARK)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, 0, 0);
        else if (classify(word) != NOTHING)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, 0, (void *)(uintptr_t)word);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const struct qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "out=", 4) == 0)
            out = fopen(argv[i] + 4, "w");
    if (!out)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
