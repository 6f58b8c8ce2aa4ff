/* exec/weights/safetensors.h - tensors in files that other tools read: the safetensors format.
 *
 * A file is a little-endian 64-bit header length, a JSON header {"name": {"dtype", "shape",
 * "data_offsets"}, "__metadata__": {...}}, then the data without gaps. Source:
 * github.com/huggingface/safetensors, README, "Format". Every number of a file that is opened is
 * checked against the file's size before anything is allocated by it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exec/weights/sha256.h"
#include "partition/base/status.h"

enum { TENSOR_MAX_DIMS = 8 };

struct tensor_info {
    char dtype
        [16]; /* "F32", "F16", "BF16", "F64", "I64", "F8_E4M3", ...; may be one we do not know */
    int ndim; /* may be above TENSOR_MAX_DIMS; shape then holds the first ones */
    int64_t shape[TENSOR_MAX_DIMS], num_elems;
    int64_t offset, bytes; /* in the file */
};

struct safetensors; /* opaque: an open file */

/* Check the whole header. ERR_SYSTEM: cannot be read; ERR_INPUT: malformed, with file and tensor.
 */
enum status safetensors_open(const char *path, struct safetensors **file, struct err *err);
void safetensors_close(struct safetensors *file); /* NULL is fine */

bool safetensors_find(const struct safetensors *file, const char *name, struct tensor_info *info);
int safetensors_count(const struct safetensors *file); /* __metadata__ included */
const char *safetensors_name(const struct safetensors *file, int index);
const char *safetensors_path(const struct safetensors *file); /* as it was opened */

/* "12,64", for errors. */
void tensor_shape_text(int ndim, const int64_t *shape, char *text, size_t size);

/* Elements as fp32; converts F16, BF16 and F64. ERR_INPUT for other dtypes, and for a value that is
 * not finite (or not as fp32): no weights, adapters or optimizer state have one. */
enum status safetensors_read(const struct safetensors *file, const char *name,
                             const struct tensor_info *info, float *values, struct err *err);

/* One F32 tensor to write; fetch() is asked for its values when its turn comes, so that nothing
 * needs to be in memory twice. */
struct tensor_out {
    const char *name;
    int ndim;
    const int64_t *shape;
    int64_t num_elems;
    const void *source; /* handed to fetch */
};
typedef enum status (*tensor_fetch)(void *ctx, const void *source, int64_t num_elems, float *values,
                                    struct err *err);

/* A tensor_fetch whose sources are floats in host memory. */
enum status tensor_fetch_host(void *ctx, const void *source, int64_t num_elems, float *values,
                              struct err *err);

/* The tensors of a file, and the function that gets their values, called with ctx. */
struct tensor_source {
    const struct tensor_out *tensors;
    int num_tensors;
    tensor_fetch fetch;
    void *ctx;
};

/* Takes the tensors of a file: writes or copies them. */
typedef enum status (*tensor_put)(void *ctx, const struct tensor_source *from, struct err *err);

/* A source with values of its own, so that the original may change. */
struct tensor_copy {
    struct tensor_source source;
    void *block;         /* owned */
    int64_t bytes;       /* of block */
    const float *values; /* of all tensors, as they follow each other in a file */
    int64_t num_values;
};
/* Copy tensors, names and values. ERR_NOMEM: it would take more than `most` bytes, or the system
 * refuses; what fetch() returns. *copy is untouched on failure. */
enum status tensor_copy_make(const struct tensor_source *from, int64_t most,
                             struct tensor_copy *copy, struct err *err);
void tensor_copy_clear(struct tensor_copy *copy); /* safe twice */

/* All bytes of a file in front of its values, in fresh memory. */
enum status safetensors_header(const struct tensor_source *from, char **bytes, int64_t *num,
                               struct err *err);

/* Like atomic_open(): the file is whole or absent, and a device or pipe stays one. sum gets length
 * and digest of the bytes as they were handed to the system; NULL: not wanted. */
enum status safetensors_write(const char *path, const struct tensor_source *from,
                              struct file_sum *sum, struct err *err);
