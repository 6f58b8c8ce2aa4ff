/* page/module.c - what the programs need of glibc and a terminal, for the module of the page. The rest of
 * the module is the code of `elapse`, main() included. */
#include <stdlib.h>

#include "cli/figures/figures.h"
#include "page/module.h"
#include "profiles/base/safe_output.h"
#include "profiles/json/build_facts.h"

const struct build_facts build_facts = {.version = ELAPSE_VERSION,
                                        .commit = "",
                                        .date = "",
                                        .compiler = "emcc",
                                        .flags = "",
                                        .mpi = "no",
                                        .blas = "no",
                                        .cuda = "no",
                                        .cuda_archs = "no"};

/* `elapse plot` is not here. */
const struct figure_kind figure_kinds[1];
const int num_figure_kinds = 0;

/* The page shows text. There is no terminal to protect. */
void safe_output_begin(bool progress)
{
    (void)progress;
}

void safe_output_wrap(void)
{
}

int terminal_columns(void)
{
    return 0;
}

static int (*compare_ctx)(const void *, const void *, void *);
static void *compare_arg;

static int compare_two(const void *a, const void *b)
{
    return compare_ctx(a, b, compare_arg);
}

void qsort_r(void *base, size_t num, size_t size,
             int (*compare)(const void *, const void *, void *), void *ctx)
{
    compare_ctx = compare;
    compare_arg = ctx;
    qsort(base, num, size, compare_two);
}
