/* tests/cudasim/cudasim_ptx.h - kernels as nvcc compiled them: PTX, interpreted.
 *
 * elapse-cuda-ptx.so holds the .cu files as nvcc makes them, with PTX for device code, its launches
 * included; what they call of the runtime is the emulation's. So what runs here is what the GPU's
 * driver would be given: what nvcc made of the code, inline PTX and its operands, contracted
 * multiply-adds, parameters by their layout. Above it the C++ of the kernels (cudasim.h) is the
 * other reading, with the checks that PTX has no names for.
 *
 * A warp runs all its lanes through an instruction before the next. Lanes that part go on by
 * groups, the one that is furthest behind first, and join where they meet; a collective waits for
 * the lanes of its mask. Every access is checked for its bounds and alignment; an instruction that
 * the interpreter does not know is a fault that names it.
 *
 * What an instruction costs is counted as the hardware counts it: warps that issued it, lanes that
 * took part, sectors of 32 bytes of device memory, passes of shared memory (1 and more where lanes
 * meet in a bank). ELAPSE_CUDASIM_COUNTS=FILE appends them, by kernel and by line of the source,
 * when the process ends.
 *
 * Semantics: PTX ISA 9.0, "Instruction Set"; sections are named where they are not plain. */
#ifndef ELAPSE_TESTS_CUDASIM_CUDASIM_PTX_H
#define ELAPSE_TESTS_CUDASIM_CUDASIM_PTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <string>
#include <vector>

enum {
    PTX_LANES = 32,
    PTX_OPERANDS = 14, /* mma.m16n8k16: 4 + 4 + 2 + 4 */
};

/* The class that an instruction is counted in. */
enum ptx_class {
    PTX_INTEGER,
    PTX_DIVIDE, /* integer: a sequence of some twenty (32 bits) to hundred instructions */
    PTX_FLOAT,
    PTX_DOUBLE,
    PTX_SPECIAL, /* ex2, rcp, and division and square roots, which are made of them */
    PTX_CONVERT,
    PTX_MOVE, /* between registers: most are gone in machine code */
    PTX_BRANCH,
    PTX_GLOBAL,
    PTX_SHARED,
    PTX_PARAM,
    PTX_MATRIX,
    PTX_EXCHANGE, /* shuffles, votes */
    PTX_WAIT,
    PTX_CLASSES
};

/* The next instruction of a warp. */
enum ptx_control {
    PTX_NEXT,
    PTX_JUMP,
    PTX_RETURN,
    PTX_WARP,  /* waits for the lanes of operand[mask_at] */
    PTX_WHOLE, /* needs all lanes of the warp */
    PTX_BLOCK,
};

enum ptx_space { PTX_SPACE_GLOBAL, PTX_SPACE_SHARED, PTX_SPACE_PARAM };

struct ptx_warp;
struct ptx_op;
typedef void (*ptx_work)(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes);

struct ptx_op {
    ptx_work work; /* of the lanes given, never none */
    enum ptx_control control;
    enum ptx_class counted;
    int guard; /* place of a predicate, or -1 */
    bool guard_not;
    uint32_t operand[PTX_OPERANDS]; /* places in a warp's registers, in bytes */
    int num_operands, mask_at;
    int target; /* of a jump */
    /* of loads and stores: */
    enum ptx_space space;
    int64_t offset;
    uint8_t bytes, vector; /* of an element; elements */
    bool is_signed, wide;  /* elements are extended; the register has 64 bits */
    bool wide_address;
    uint32_t line;               /* of the source, 0: not known */
    const char *text;            /* its name, for messages */
    uint64_t warps, lanes, cost; /* counted: cost by sectors or passes */
};

struct ptx_param {
    uint32_t offset, bytes;
};

/* Constants and special registers are registers that are filled beforehand, the lanes of each
 * one behind the other: 32 x 4 bytes, 32 x 8, or of a predicate one word, a bit for each lane. */
struct ptx_constant {
    uint32_t place;
    char kind; /* i, l, p of struct ptx_meaning */
    uint64_t value;
};
enum ptx_special {
    PTX_TID_X,
    PTX_TID_Y,
    PTX_TID_Z,
    PTX_CTAID_X,
    PTX_CTAID_Y,
    PTX_CTAID_Z,
    PTX_NTID_X,
    PTX_NTID_Y,
    PTX_NTID_Z,
    PTX_NCTAID_X,
    PTX_NCTAID_Y,
    PTX_NCTAID_Z,
    PTX_LANEID,
    PTX_SPECIALS
};

struct ptx_kernel {
    std::string name, unknown; /* unknown: why it cannot run, "" where it can */
    std::vector<struct ptx_op> ops;
    std::vector<struct ptx_param> params;
    uint32_t param_bytes;
    uint32_t static_shared; /* bytes in front of the dynamic part */
    uint32_t register_bytes;
    std::vector<struct ptx_constant> constants;
    int64_t special[PTX_SPECIALS]; /* its place, -1: not read */
    uint64_t launches, blocks;
};

/* --- cudasim_ptx_load.cpp -------------------------------------------------------------------- */
/* Adds the kernels of a module's text. A kernel with what is not known is there, and says so. */
void cudasim_ptx_load(const char *text, std::vector<struct ptx_kernel *> *kernels);
/* "exec/cuda/cuda_norm.cu:120" */
std::string cudasim_ptx_line(uint32_t line);

/* --- cudasim_ptx_ops.cpp --------------------------------------------------------------------- */
/* The meaning of an instruction of this name; NULL: not known. `operands` has a letter for each: i a
 * register of up to 32 bits, l one of 64, p a predicate; {} around what is written so. */
struct ptx_meaning {
    ptx_work work;
    enum ptx_class counted;
    const char *operands;
    enum ptx_control control;
    int mask_at;
};
const struct ptx_meaning *cudasim_ptx_meaning(const std::string &name);
/* Loads and stores, by their operands' sizes. */
void cudasim_ptx_load_lanes(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes);
void cudasim_ptx_store_lanes(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes);

/* --- cudasim_ptx_run.cpp --------------------------------------------------------------------- */
struct ptx_copy { /* one cp.async of a lane */
    int lane, group;
    uint32_t to;
    const unsigned char *from;
    int read;
};
struct ptx_group { /* lanes at the same instruction */
    int pc;
    uint32_t lanes;
    bool waits;
};
struct ptx_warp {
    unsigned char *registers;
    const unsigned char *params;
    struct ptx_kernel *kernel;
    int index;
    uint32_t live;
    std::vector<struct ptx_group> groups;
    std::vector<struct ptx_copy> copies;
    int copy_group[PTX_LANES];
};
template <typename T> static inline T *ptx_lanes(struct ptx_warp *w, uint32_t place)
{
    return (T *)(void *)(w->registers + place);
}
/* One block of the running grid; args are the kernel's parameters, by their offsets. */
void cudasim_ptx_block(struct ptx_kernel *kernel, const unsigned char *args);
/* Its counts, as text (ELAPSE_CUDASIM_COUNTS). */
void cudasim_ptx_write_counts(const struct ptx_kernel *kernel, FILE *f);
/* Addresses of shared memory count from the static part on. */
unsigned char *cudasim_ptx_shared(uint32_t address, size_t bytes, struct ptx_warp *w,
                                  const struct ptx_op *op, int lane);
/* Ends the kernel; says where. */
[[noreturn]] void cudasim_ptx_fault(struct ptx_warp *w, const struct ptx_op *op, int lane, int code,
                                    const char *format, ...) __attribute__((format(printf, 5, 6)));
void cudasim_ptx_copies(struct ptx_warp *w, uint32_t lanes, int pending);
#endif
