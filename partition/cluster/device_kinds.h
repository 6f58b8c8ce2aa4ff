/* partition/cluster/device_kinds.h - the published figures of device kinds. Pure.
 *
 * The shipped kinds are the JSON files of profiles/devices, which the build turns into C. A user's own
 * kind is read from the same keys (profiles/job/kind_json.h) and belongs to the clusters that use it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/member.h"
#include "partition/cluster/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Published figures of one device kind. The roofline is max(flops / peak, bytes / bandwidth). */
struct roofline {
    const char *kind;
    /* Dense tensor-core or FMA peaks, as published. */
    double fp32_flops_per_s, tf32_flops_per_s, bf16_flops_per_s, fp16_flops_per_s;
    double fp8_flops_per_s, fp4_flops_per_s; /* 0, as above: none is published, or no such units */
    double mem_bytes_per_s;
    int64_t mem_bytes;
    double link_bytes_per_s;
    const char *source; /* the vendor's data sheet */
};

/* Matrix products. C is computed in tiles; each wave gives every SM one. */
struct matmul_curve {
    double peak;     /* fraction of the published peak that a large tile reaches */
    double tile;     /* loss of smaller tiles: 1 + 64 x tile x (1/rows + 1/columns) */
    double tail;     /* part of a last, incomplete wave that is lost; 1: all */
    double part;     /* the same, if there is one wave only */
    double depth;    /* k at which filling and draining the pipeline doubles the time */
    double nn, nt;   /* speed of these layouts; TN is 1 */
    double start_us; /* launch and first loads */
    double hot;      /* replaces peak when the power limit lowers the clock */
    double narrow;   /* share of a narrow peak over that of the wide one */
    double warm_us;  /* ideal time of a product at which half of that has happened */
    double memory;   /* fraction of the published memory bandwidth that products reach */
    double blend;    /* time = (work^blend + bytes^blend)^(1/blend); 0: the larger of the two */
};

/* Fused attention. Rates count both halves of a causal mask, as the measurements do. */
struct attention_curve {
    double forward, backward; /* fraction of the peak, causal, many blocks, 4096 tokens */
    double half_blocks[2];    /* blocks of 128 rows at which half of it is reached: F, B */
    double half_seq;          /* tokens by which short sequences lose */
};

/* The times of a kind's kernels: partition/cost/device_curves.h has the formula. */
struct device_curve {
    const char *fitted_on; /* whose measurements these are; another kind: the nearest */
    double sms;            /* 0: no curve */
    struct matmul_curve matmul;
    struct attention_curve attention;
    double bandwidth;       /* fraction of the published memory bandwidth that kernels reach */
    double memory_start_us; /* of a memory-bound kernel */
    double host_us;         /* the host's time to launch one kernel */
};

/* The type and unit of a figure. In JSON it is a number in the base unit, or a text with a unit. */
enum figure_unit {
    FIGURE_FLOPS = MEMBER_FLOPS,
    FIGURE_RATE = MEMBER_RATE,
    FIGURE_BYTES = MEMBER_BYTES,
    FIGURE_NS = MEMBER_NS,
    FIGURE_NUMBER = MEMBER_REAL,
    FIGURE_US = MEMBER_OTHER /* double in us, written in ns */
};

/* One figure of a kind: its key in files, a short key for people ("mem"; NULL: none), what it is, and
 * its place in struct kind. */
struct kind_figure {
    const char *key, *short_key, *words;
    enum figure_unit unit;
    bool above_zero; /* else 0 is legal: none, or not published */
    size_t offset;
    const char *member; /* C text of the place */
};
enum { NUM_KIND_FIGURES = 41 + 2 * COLLECTIVE_COUNT };
extern const struct kind_figure kind_figures[NUM_KIND_FIGURES];

/* All that is known of a device kind. The texts of a shipped kind are static; those of a user's own
 * belong to its strings and to `base`. */
struct kind {
    const char *name;
    const char *like;   /* a user's: the kind that its other figures are of; NULL: none */
    const char *source; /* of the figures that name none of their own */
    struct roofline roof;
    struct device_curve curve;             /* sms 0: nobody measured such kernels */
    struct machine node;                   /* uplink_bytes_per_s 0: no network is published */
    struct collective_source collectives;  /* link[0] 0: no figures */
    const char *sources[NUM_KIND_FIGURES]; /* as kind_figures; NULL where there is no figure */
    /* Set for a user's kind only. */
    int references;
    struct kind *base; /* owned reference: of `like`, where that is no shipped kind */
    char **strings;    /* owned */
    int num_strings;
};
extern const struct kind shipped_kinds[];
extern const int num_shipped_kinds;
extern const char *const shipped_kind_names[], *const shipped_curve_names[]; /* end with NULL */

const struct kind *kind_find(const char *name); /* a shipped one; NULL when unknown */
/* A shipped kind by a name as people type it: in any case, with or without the maker, "RTX", "SXM", the
 * memory, and whatever separates the words ("NVIDIA A100-SXM4-80GB", "4090", "rtx_6000_ada"). A memory
 * that is not the kind's is not understood. NULL when unknown. */
const struct kind *kind_find_typed(const char *name);
/* The kind of a device: a user's own, or the shipped one of its name; NULL: none. */
const struct kind *kind_of_device(const struct device *device);
/* Fill the names and sources of a kind's parts from its own. The last step of making one. */
void kind_finish(struct kind *kind);
/* The source of the figure at that offset of struct kind; "" where it has none. */
const char *kind_source(const struct kind *kind, size_t offset);
double kind_figure_value(const struct kind *kind, int figure);
void kind_figure_set(struct kind *kind, int figure, double value);
/* One more owner of a user's kind; NULL and shipped kinds are left alone. Returns it. */
struct kind *kind_hold(struct kind *kind);
void kind_release(struct kind *kind); /* frees it with its last owner */

/* Parts of a kind, by the name of a shipped one; NULL when unknown or without such figures. */
const struct roofline *roofline_find(const char *kind);
const struct roofline *device_roofline(const struct device *device);
const struct device_curve *device_curve_find(const char *kind);
const struct device_curve *device_curve_of(const struct device *device);
/* Formats of the products of a layer's weights that are narrower than its activations. */
enum narrow_format { NARROW_NONE, NARROW_FP8, NARROW_MXFP8, NARROW_NVFP4 };
/* The kind's peak in a narrow format; 0 without units for it. */
double roofline_narrow_peak(const struct roofline *roof, enum narrow_format format);
const char *narrow_format_name(enum narrow_format format); /* "fp8"; NULL for NARROW_NONE */
/* Whether the kind has fp16 units but none for bf16, which runs at its fp32 rate. */
bool roofline_lacks_bf16(const struct roofline *roof);

#ifdef __cplusplus
}
#endif
