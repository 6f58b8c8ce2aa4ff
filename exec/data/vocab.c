/* A hash table with open addressing and linear probing, at most half full; and reading of whole
 * files. */
#include "exec/data/vocab.h"
#include "profiles/base/whole_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "profiles/base/whole_file.h"
#include "partition/base/arrays.h"

enum { FIRST_SLOTS = 1024, FIRST_ROOM = 4096, FIRST_READ = 1 << 16 };

static uint64_t hash(const char *piece, size_t length)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)piece[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

void vocab_clear(struct vocab *vocab)
{
    free(vocab->bytes);
    free(vocab->slots);
    *vocab = (struct vocab){0};
}

static struct vocab_slot *find_slot(const struct vocab *vocab, const char *piece, size_t length)
{
    uint64_t mask = (uint64_t)vocab->num_slots - 1;
    for (uint64_t i = hash(piece, length) & mask;; i = (i + 1) & mask) {
        struct vocab_slot *slot = &vocab->slots[i];
        if (slot->length < 0 || ((size_t)slot->length == length &&
                                 memcmp(vocab->bytes + slot->text, piece, length) == 0))
            return slot;
    }
}

static enum status grow_slots(struct vocab *vocab, struct err *err)
{
    struct vocab bigger = *vocab;
    bigger.num_slots = vocab->num_slots ? 2 * vocab->num_slots : FIRST_SLOTS;
    bigger.slots = malloc((size_t)bigger.num_slots * sizeof *bigger.slots);
    if (!bigger.slots)
        return err_nomem(err);
    for (int64_t i = 0; i < bigger.num_slots; i++)
        bigger.slots[i].length = -1;
    for (int64_t i = 0; i < vocab->num_slots; i++)
        if (vocab->slots[i].length >= 0)
            *find_slot(&bigger, vocab->bytes + vocab->slots[i].text,
                       (size_t)vocab->slots[i].length) = vocab->slots[i];
    free(vocab->slots);
    *vocab = bigger;
    return OK;
}

enum status vocab_put(struct vocab *vocab, const char *piece, size_t length, int32_t id,
                      struct err *err)
{
    struct vocab_slot *slot;
    int64_t need = vocab->num_bytes + (int64_t)length;
    if (length > INT32_MAX / 2)
        return err_set(err, ERR_INPUT, "a piece of %zu bytes is too long", length);
    if (2 * (vocab->count + 1) > vocab->num_slots) {
        enum status rc = grow_slots(vocab, err);
        if (rc != OK)
            return rc;
    }
    slot = find_slot(vocab, piece, length);
    if (slot->length >= 0)
        return err_set(err, ERR_INPUT, "'%.*s' occurs twice", length < 60 ? (int)length : 60,
                       piece);
    if (!vocab->bytes || need > vocab->room_bytes) {
        int64_t room = vocab->room_bytes ? vocab->room_bytes : FIRST_ROOM;
        char *bytes;
        while (room < need)
            room *= 2;
        bytes = realloc(vocab->bytes, (size_t)room);
        if (!bytes)
            return err_nomem(err);
        vocab->bytes = bytes;
        vocab->room_bytes = room;
    }
    memcpy(vocab->bytes + vocab->num_bytes, piece, length);
    *slot = (struct vocab_slot){.text = vocab->num_bytes, .length = (int32_t)length, .id = id};
    vocab->num_bytes = need;
    vocab->max_id = vocab->count == 0 || id > vocab->max_id ? id : vocab->max_id;
    vocab->max_length = slot->length > vocab->max_length ? slot->length : vocab->max_length;
    vocab->count++;
    return OK;
}

int32_t vocab_find(const struct vocab *vocab, const char *piece, size_t length)
{
    const struct vocab_slot *slot;
    if (vocab->count == 0 || length > (size_t)vocab->max_length)
        return -1;
    slot = find_slot(vocab, piece, length);
    return slot->length < 0 ? -1 : slot->id;
}

enum status token_list_add(struct token_list *list, struct token token, struct err *err)
{
    if (!array_grow(&list->at, list->count + 1, &list->room, sizeof *list->at))
        return err_nomem(err);
    list->at[list->count++] = token;
    return OK;
}

void token_list_clear(struct token_list *list)
{
    free(list->at);
    *list = (struct token_list){0};
}

enum status data_read_file(const char *path, int64_t limit, char **bytes, int64_t *num_bytes,
                           struct err *err)
{
    struct stat st;
    gzFile in = NULL;
    char *got = NULL;
    int64_t count = 0, room = 0;
    int code = Z_OK, n = 0;
    enum status rc = OK;
    int fd = -1;
    rc = input_open(path, "open", &fd, &st, err);
    if (rc != OK)
        return rc;
    limit = file_limit(&st, limit);
    in = gzdopen(fd, "rb");
    if (!in) {
        close(fd);
        return err_nomem(err);
    }
    do {
        if (room - count < FIRST_READ) {
            int64_t bigger = room ? 2 * room : 2 * FIRST_READ;
            if (bigger > limit + 2 * FIRST_READ)
                bigger = limit + 2 * FIRST_READ;
            char *more = realloc(got, (size_t)bigger);
            if (!more) {
                rc = err_nomem(err);
                goto out;
            }
            got = more;
            room = bigger;
        }
        n = gzread(in, got + count, (unsigned)(room - count - 1));
        count += n > 0 ? n : 0;
        if (count > limit) {
            rc = err_set(err, ERR_INPUT, "'%s' holds more than %lld bytes", path, (long long)limit);
            goto out;
        }
    } while (n > 0);
    gzerror(in, &code);
    if (n < 0 || code == Z_BUF_ERROR) {
        rc = code == Z_ERRNO
                 ? err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno))
                 : err_set(err, ERR_INPUT, "'%s': the gzip stream is %s", path,
                           code == Z_BUF_ERROR ? "cut off" : "corrupt");
        goto out;
    }
    got[count] = '\0';
    *bytes = got;
    *num_bytes = count;
    got = NULL;
out:
    free(got);
    gzclose(in);
    return rc;
}

enum status data_read_text(const char *path, int64_t limit, char **text, int64_t *num_bytes,
                           struct err *err)
{
    char *got = NULL;
    int64_t count = 0;
    enum status rc = data_read_file(path, limit, &got, &count, err);
    THEN(file_refuse_utf16(path, got, (size_t)count, err));
    if (rc != OK) {
        free(got);
        return rc;
    }
    const size_t mark = file_mark(got);
    memmove(got, got + mark, (size_t)count + 1 - mark);
    *text = got;
    *num_bytes = count - (int64_t)mark;
    return OK;
}
