/* exec/weights/safetensors.c - reads and writes the safetensors format: 8 bytes with the length of a
 * JSON header, the header (name, dtype, shape and byte range of each tensor), then the tensors'
 * bytes. The reader checks every entry of the header when it opens a file, so later reads can trust
 * it. */
#include "exec/weights/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/base/file_part.h"
#include "partition/base/units.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"

/* The reference implementation refuses headers above 100 MB. */
enum { MAX_HEADER_BYTES = 100000000, HEADER_ALIGN = 8, CHUNK_ELEMS = 1 << 18 };

struct safetensors {
    char *path;
    int fd;
    int64_t data_start, data_bytes;
    struct json *header;
};

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {
    {"F64",  8},
    {"F32",  4},
    {"F16",  2},
    {"BF16", 2},
    {"I64",  8},
    {"I32",  4},
    {"I16",  2},
    {"I8",   1},
    {"U64",  8},
    {"U32",  4},
    {"U16",  2},
    {"U8",   1},
    {"C64",  8},
    {"BOOL", 1}
};

static enum status read_part(const struct safetensors *file, void *data, int64_t bytes,
                             int64_t offset, struct err *err)
{
    if (file_read_at(file->fd, data, bytes, offset))
        return OK;
    return err_set(err, ERR_SYSTEM, "cannot read '%s': %s", file->path, file_read_why());
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Parse and check one entry of the header. false: it is wrong, *why says how. The size of a dtype
 * that we do not know is not checked, because a file may hold tensors that nobody asks for. */
static bool parse_entry(const struct safetensors *file, const struct json *entry,
                        struct tensor_info *info, const char **why)
{
    struct json *dtype = json_get(entry, "dtype"), *shape = json_get(entry, "shape");
    struct json *offsets = json_get(entry, "data_offsets");
    int64_t first, end, elems = 1, bytes;
    int elem_bytes = 0;
    *info = (struct tensor_info){0};
    *why = "dtype, shape or data_offsets is missing";
    if (!dtype || !json_string(dtype) || !shape || json_type(shape) != JSON_ARRAY || !offsets ||
        json_type(offsets) != JSON_ARRAY || json_count(offsets) != 2)
        return false;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(json_string(dtype), dtypes[i].name) == 0)
            elem_bytes = dtypes[i].bytes;
    snprintf(info->dtype, sizeof info->dtype, "%s", json_string(dtype));
    info->ndim = json_count(shape);
    *why = "shape is not made of sizes";
    for (int i = 0; i < info->ndim; i++) {
        int64_t size;
        if (!json_int64(json_at(shape, i), &size) || size < 0 || !mul_ok(elems, size, &elems))
            return false;
        if (i < TENSOR_MAX_DIMS)
            info->shape[i] = size;
    }
    *why = "data_offsets lie outside the file";
    if (!json_int64(json_at(offsets, 0), &first) || !json_int64(json_at(offsets, 1), &end) ||
        first < 0 || end < first || end > file->data_bytes)
        return false;
    *why = "shape and data_offsets disagree";
    if (elem_bytes > 0 && (!mul_ok(elems, elem_bytes, &bytes) || bytes != end - first))
        return false;
    info->num_elems = elems;
    info->offset = file->data_start + first;
    info->bytes = end - first;
    return true;
}

/* Say what a file is that is no safetensors file, by its first bytes. */
static void hint_format(const unsigned char first[8], struct err *err)
{
    if (memcmp(first, "PK\3\4", 4) == 0 || (first[0] == 0x80 && first[1] <= 5))
        err_hint(err, "it is a file of PyTorch; from_pretrained(DIR).save_pretrained(NEW) of "
                      "transformers converts it");
    else if (memcmp(first, "version ", 8) == 0)
        err_hint(err, "it is a pointer of Git LFS; 'git lfs pull' fetches the file itself");
    else if (first[0] == '{')
        err_hint(err, "it is JSON; an index of shards must be named '*.index.json'");
}

/* Read the header of a file of `bytes` bytes into file->header, and where its tensors lie. */
static enum status read_header(struct safetensors *file, int64_t bytes, struct err *err)
{
    const char *path = file->path;
    unsigned char length[8];
    uint64_t header_bytes = 0;
    if (bytes < 8)
        return err_set(err, ERR_INPUT, "'%s' is not a safetensors file: %lld bytes", path,
                       (long long)bytes);
    enum status rc = read_part(file, length, sizeof length, 0, err);
    if (rc != OK)
        return rc;
    for (int i = 7; i >= 0; i--)
        header_bytes = header_bytes << 8 | length[i];
    if (header_bytes > MAX_HEADER_BYTES || header_bytes > (uint64_t)bytes - 8) {
        rc = err_set(err, ERR_INPUT,
                     "'%s': header length %llu, but the file has %lld bytes (limit %d)", path,
                     (unsigned long long)header_bytes, (long long)bytes, MAX_HEADER_BYTES);
        hint_format(length, err);
        return rc;
    }
    char *text = malloc((size_t)header_bytes + 1);
    if (!text)
        return err_nomem(err);
    rc = read_part(file, text, (int64_t)header_bytes, 8, err);
    text[header_bytes] = '\0';
    file->data_start = 8 + (int64_t)header_bytes;
    file->data_bytes = bytes - file->data_start;
    THEN(json_parse(text, path, &file->header, err));
    free(text);
    if (rc == OK && json_type(file->header) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "'%s': the header is not an object", path);
    return rc;
}

enum status safetensors_open(const char *path, struct safetensors **file, struct err *err)
{
    enum status rc;
    struct stat st;
    struct safetensors *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->fd = -1;
    rc = input_open(path, "open", &got->fd, &st, err);
    if (rc != OK)
        goto out;
    got->path = strdup(path);
    if (!got->path) {
        rc = err_nomem(err);
        goto out;
    }
    rc = read_header(got, st.st_size, err);
    if (rc != OK)
        goto out;
    for (const struct json *entry = json_first(got->header); entry; entry = json_next(entry)) {
        struct tensor_info info;
        const char *why;
        if (strcmp(json_key(entry), "__metadata__") != 0 && !parse_entry(got, entry, &info, &why)) {
            rc = err_set(err, ERR_INPUT, "'%s': tensor '%.100s': %s", path, json_key(entry), why);
            goto out;
        }
    }
    *file = got;
    got = NULL;
    rc = OK;
out:
    safetensors_close(got);
    return rc;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_free(file->header);
    free(file->path);
    free(file);
}

bool safetensors_find(const struct safetensors *file, const char *name, struct tensor_info *info)
{
    const struct json *entry = json_get(file->header, name);
    const char *why;
    return entry && strcmp(name, "__metadata__") != 0 && parse_entry(file, entry, info, &why);
}

int safetensors_count(const struct safetensors *file)
{
    return json_count(file->header);
}

const char *safetensors_name(const struct safetensors *file, int index)
{
    return json_key(json_at(file->header, index));
}

const char *safetensors_path(const struct safetensors *file)
{
    return file->path;
}

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, bits;
    uint32_t mantissa = half & 1023u;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

void tensor_shape_text(int ndim, const int64_t *shape, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && d < TENSOR_MAX_DIMS && used < size; d++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%lld", d ? "," : "", (long long)shape[d]);
    if (ndim > TENSOR_MAX_DIMS && used < size)
        snprintf(text + used, size - used, ",...");
}

/* Read the elements as fp32, whatever they are. */
static enum status read_elems(const struct safetensors *file, const char *name,
                              const struct tensor_info *info, float *values, struct err *err)
{
    enum status rc = OK;
    int elem_bytes = info->num_elems ? (int)(info->bytes / info->num_elems) : 4;
    bool f16 = strcmp(info->dtype, "F16") == 0, bf16 = strcmp(info->dtype, "BF16") == 0;
    bool f64 = strcmp(info->dtype, "F64") == 0;
    char *raw;
    if (strcmp(info->dtype, "F32") == 0)
        return read_part(file, values, info->bytes, info->offset, err);
    if (!f16 && !bf16 && !f64)
        return err_set(err, ERR_INPUT,
                       "'%s': tensor '%s' has dtype %s, must be F32, F16, BF16, F64", file->path,
                       name, info->dtype);
    raw = malloc((size_t)CHUNK_ELEMS * 8);
    if (!raw)
        return err_nomem(err);
    for (int64_t at = 0; rc == OK && at < info->num_elems; at += CHUNK_ELEMS) {
        int64_t n = info->num_elems - at < CHUNK_ELEMS ? info->num_elems - at : CHUNK_ELEMS;
        rc = read_part(file, raw, n * elem_bytes, info->offset + at * elem_bytes, err);
        for (int64_t i = 0; rc == OK && i < n; i++) {
            uint16_t half;
            double real;
            if (f64) {
                memcpy(&real, raw + i * 8, sizeof real);
                values[at + i] = (float)real;
                continue;
            }
            memcpy(&half, raw + i * 2, sizeof half);
            if (f16) {
                values[at + i] = half_to_float(half);
            } else {
                uint32_t bits = (uint32_t)half << 16;
                memcpy(&values[at + i], &bits, sizeof bits);
            }
        }
    }
    free(raw);
    return rc;
}

enum status safetensors_read(const struct safetensors *file, const char *name,
                             const struct tensor_info *info, float *values, struct err *err)
{
    const enum status rc = read_elems(file, name, info, values, err);
    for (int64_t i = 0; rc == OK && i < info->num_elems; i++)
        if (!isfinite(values[i]))
            return err_set(err, ERR_INPUT,
                           "'%s': tensor '%s' holds a value that is not finite (%s, element %lld)",
                           file->path, name, isnan(values[i]) ? "nan" : "inf", (long long)i);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

static enum status header_text(const struct tensor_out *tensors, int num_tensors, char **text,
                               struct err *err)
{
    struct json *header = json_object_new();
    int64_t offset = 0;
    enum status rc;
    /* transformers refuses files without this entry. */
    json_add_string(json_add_object(header, "__metadata__"), "format", "pt");
    for (int i = 0; i < num_tensors; i++) {
        struct json *entry = json_add_object(header, tensors[i].name), *list;
        int64_t bytes;
        json_add_string(entry, "dtype", "F32");
        json_add_int64s(entry, "shape", tensors[i].shape, tensors[i].ndim);
        list = json_add_array(entry, "data_offsets");
        json_add_int(list, NULL, offset);
        if (!mul_ok(tensors[i].num_elems, 4, &bytes) || !add_ok(offset, bytes, &offset)) {
            json_free(header);
            return err_set(err, ERR_INPUT, "tensor '%s' is too large", tensors[i].name);
        }
        json_add_int(list, NULL, offset);
    }
    rc = json_text(header, false, text, err);
    json_free(header);
    return rc;
}

enum status tensor_fetch_host(void *ctx, const void *source, int64_t num_elems, float *values,
                              struct err *err)
{
    (void)ctx;
    (void)err;
    memcpy(values, source, (size_t)num_elems * sizeof *values);
    return OK;
}

enum status tensor_copy_make(const struct tensor_source *from, int64_t most,
                             struct tensor_copy *copy, struct err *err)
{
    const size_t num = (size_t)from->num_tensors;
    size_t dims = 0, elems = 0, chars = 0;
    for (size_t i = 0; i < num; i++) {
        dims += (size_t)from->tensors[i].ndim;
        elems += (size_t)from->tensors[i].num_elems;
        chars += strlen(from->tensors[i].name) + 1;
    }
    const size_t bytes =
        num * sizeof *from->tensors + dims * sizeof(int64_t) + elems * sizeof(float) + chars + 1;
    /* The block holds the tensors, then their shapes, values and names. */
    struct tensor_out *tensors = bytes <= (size_t)most ? malloc(bytes) : NULL;
    if (!tensors)
        return err_nomem(err);
    int64_t *shape = (int64_t *)(void *)(tensors + num);
    float *values = (float *)(void *)(shape + dims);
    char *name = (char *)(values + elems);
    enum status rc = OK;
    for (size_t i = 0; rc == OK && i < num; i++) {
        tensors[i] = from->tensors[i];
        tensors[i].shape =
            memcpy(shape, from->tensors[i].shape, (size_t)tensors[i].ndim * sizeof *shape);
        tensors[i].name = strcpy(name, from->tensors[i].name);
        tensors[i].source = values;
        rc = from->fetch(from->ctx, from->tensors[i].source, tensors[i].num_elems, values, err);
        shape += tensors[i].ndim;
        values += tensors[i].num_elems;
        name += strlen(name) + 1;
    }
    if (rc == OK)
        *copy = (struct tensor_copy){
            {tensors, (int)num, tensor_fetch_host, NULL},
            tensors,
            (int64_t)bytes,
            values - elems,
            (int64_t)elems
        };
    else
        free(tensors);
    return rc;
}

void tensor_copy_clear(struct tensor_copy *copy)
{
    free(copy->block);
    *copy = (struct tensor_copy){0};
}

/* The targets of a file's bytes: the file, and its digest if one is wanted. */
struct sink {
    FILE *out;
    struct file_sum *sum; /* NULL: no digest */
    struct sha256 sha;
};

static void put(struct sink *sink, const void *data, size_t size)
{
    fwrite(data, 1, size, sink->out);
    if (!sink->sum)
        return;
    sha256_add(&sink->sha, data, size);
    sink->sum->bytes += (int64_t)size;
}

/* Header length, header, spaces up to the next multiple of HEADER_ALIGN. */
enum status safetensors_header(const struct tensor_source *from, char **bytes, int64_t *num,
                               struct err *err)
{
    char *text = NULL;
    enum status rc = header_text(from->tensors, from->num_tensors, &text, err);
    if (rc != OK)
        return rc;
    const size_t length = strlen(text);
    const size_t padded = (length + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    char *got = malloc(8 + padded);
    if (got) {
        for (int i = 0; i < 8; i++)
            got[i] = (char)(unsigned char)((uint64_t)padded >> (8 * i));
        memcpy(got + 8, text, length);
        memset(got + 8 + length, ' ', padded - length);
    }
    free(text);
    *bytes = got;
    *num = (int64_t)(8 + padded);
    return got ? OK : err_nomem(err);
}

enum status safetensors_write(const char *path, const struct tensor_source *from,
                              struct file_sum *sum, struct err *err)
{
    const struct tensor_out *tensors = from->tensors;
    enum status rc;
    char *header = NULL;
    float *values = NULL;
    struct atomic_file file = {0};
    struct sink sink = {.sum = sum};
    int64_t most = 0, header_bytes = 0;
    rc = safetensors_header(from, &header, &header_bytes, err);
    if (rc != OK)
        goto out;
    for (int i = 0; i < from->num_tensors; i++)
        most = tensors[i].num_elems > most ? tensors[i].num_elems : most;
    values = malloc(most ? (size_t)most * sizeof *values : 1);
    if (!values) {
        rc = err_nomem(err);
        goto out;
    }
    rc = atomic_open(&file, path, err);
    if (rc != OK)
        goto out;
    sink.out = file.out;
    if (sum) {
        sum->bytes = 0;
        sha256_begin(&sink.sha);
    }
    put(&sink, header, (size_t)header_bytes);
    for (int i = 0; rc == OK && i < from->num_tensors; i++) {
        rc = from->fetch(from->ctx, tensors[i].source, tensors[i].num_elems, values, err);
        if (rc == OK)
            put(&sink, values, (size_t)tensors[i].num_elems * sizeof *values);
    }
    if (sum) {
        const enum status hashed = sha256_end(&sink.sha, sum->sha256, rc == OK ? err : NULL);
        rc = rc != OK ? rc : hashed;
    }
    rc = atomic_close(&file, rc, err);
out:
    free(values);
    free(header);
    return rc;
}
