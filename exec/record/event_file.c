/* The wire format: protobuf.dev/programming-guides/encoding; the fields: tensorboard/compat/proto,
 * event.proto and summary.proto; the records: tensorflow.org/tutorials/load_data/tfrecord. */
#include "exec/record/event_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_MAX = 4096, VALUE_MAX = 160 };

struct event_file {
    FILE *out;
    char *path; /* owned */
};

/* A message that is being encoded. Numbers are little-endian, as this machine's must be. */
struct message {
    unsigned char bytes[MESSAGE_MAX];
    size_t size;
};

uint32_t crc32c(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t size)
{
    const uint32_t crc = crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_bytes(struct message *m, const void *data, size_t size)
{
    if (m->size + size <= sizeof m->bytes)
        memcpy(m->bytes + m->size, data, size);
    m->size += size;
}

static void put_varint(struct message *m, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
        put_bytes(m, &byte, 1);
        value >>= 7;
    } while (value);
}

/* Wire types of protocol buffers. */
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_key(struct message *m, int field, enum wire wire)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_text(struct message *m, int field, const void *data, size_t size)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, size);
    put_bytes(m, data, size);
}

/* Event: wall_time = 1 (double), step = 2 (int64). */
static void begin_event(struct message *m, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    m->size = 0;
    put_key(m, 1, WIRE_64);
    put_bytes(m, &seconds, sizeof seconds);
    put_key(m, 2, WIRE_VARINT);
    put_varint(m, (uint64_t)step);
}

static enum status write_record(struct event_file *file, const struct message *m, struct err *err)
{
    const uint64_t length = m->size;
    const uint32_t length_crc = masked_crc(&length, sizeof length);
    const uint32_t data_crc = masked_crc(m->bytes, m->size);
    fwrite(&length, sizeof length, 1, file->out);
    fwrite(&length_crc, sizeof length_crc, 1, file->out);
    fwrite(m->bytes, 1, m->size, file->out);
    fwrite(&data_crc, sizeof data_crc, 1, file->out);
    if (fflush(file->out) != 0 || ferror(file->out))
        return err_set(err, ERR_SYSTEM, "cannot write '%.300s': %s", file->path, strerror(errno));
    return OK;
}

enum status event_file_write(struct event_file *file, int64_t step,
                             const struct event_scalar *scalars, int num_scalars, struct err *err)
{
    struct message event, summary = {.size = 0};
    begin_event(&event, step);
    for (int i = 0; i < num_scalars; i++) {
        struct message value = {.size = 0};
        const float number = (float)scalars[i].value;
        if (isnan(scalars[i].value))
            continue;
        /* Summary.Value: tag = 1, simple_value = 2 (float); Summary: value = 1 (repeated). */
        put_text(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_key(&value, 2, WIRE_32);
        put_bytes(&value, &number, sizeof number);
        put_text(&summary, 1, value.bytes, value.size);
    }
    if (summary.size > MESSAGE_MAX - VALUE_MAX)
        return err_set(err, ERR_INPUT, "%d scalars do not fit one event", num_scalars);
    put_text(&event, 5, summary.bytes, summary.size); /* Event: summary = 5 */
    return write_record(file, &event, err);
}

enum status event_file_open(const char *dir, struct event_file **file, struct err *err)
{
    static const char version[] = "brain.Event:2";
    char host[64] = "localhost";
    struct message event;
    struct event_file *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    enum status rc = OK;
    gethostname(host, sizeof host - 1);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        rc = err_set(err, ERR_SYSTEM, "cannot make folder '%.300s': %s", dir, strerror(errno));
    } else if (asprintf(&got->path, "%s/events.out.tfevents.%lld.%s.%ld", dir,
                        (long long)time(NULL), host, (long)getpid()) < 0) {
        got->path = NULL;
        rc = err_nomem(err);
    } else if (!(got->out = fopen(got->path, "wb"))) {
        rc = err_set(err, ERR_SYSTEM, "cannot write '%.300s': %s", got->path, strerror(errno));
    } else {
        begin_event(&event, 0);
        put_text(&event, 3, version, strlen(version)); /* Event: file_version = 3 */
        rc = write_record(got, &event, err);
    }
    if (rc != OK) {
        event_file_close(got);
        return rc;
    }
    *file = got;
    return OK;
}

void event_file_close(struct event_file *file)
{
    if (!file)
        return;
    if (file->out)
        fclose(file->out);
    free(file->path);
    free(file);
}
