/* TensorBoard event files, read back by a second reader written from the format's description. */
#include <dirent.h>

#include "exec/record/event_file.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static void crc32c__is_that_of_the_rfc(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0}, ones[32]; /* RFC 3720, B.4 */
    memset(ones, 0xFF, sizeof ones);
    assert_int_equal(crc32c(zeros, 32), 0x8A9136AA);
    assert_int_equal(crc32c(ones, 32), 0x62A8AB43);
    assert_int_equal(crc32c("123456789", 9), 0xE3069283);
}

static uint64_t varint(const unsigned char **p)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const unsigned char byte = *(*p)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128))
            return value;
    }
}

/* The contents of an event. */
struct seen {
    uint64_t step;
    double wall;
    char version[32], text[256]; /* text: "tag=value " for each scalar */
};

static void read_value(const unsigned char *p, size_t size, struct seen *seen)
{
    const unsigned char *end = p + size;
    char tag[64] = "";
    float value = NAN;
    while (p < end) {
        const uint64_t key = varint(&p);
        if (key == (1 << 3 | 2)) {
            const uint64_t n = varint(&p);
            snprintf(tag, sizeof tag, "%.*s", (int)n, (const char *)p);
            p += n;
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            memcpy(&value, p, 4);
            p += 4;
        }
    }
    snprintf(seen->text + strlen(seen->text), sizeof seen->text - strlen(seen->text), "%s=%g ", tag,
             value);
}

static void read_event(const unsigned char *p, size_t size, struct seen *seen)
{
    const unsigned char *end = p + size;
    while (p < end) {
        const uint64_t key = varint(&p);
        if (key == (1 << 3 | 1)) {
            memcpy(&seen->wall, p, 8);
            p += 8;
        } else if (key == 2 << 3) {
            seen->step = varint(&p);
        } else {
            const uint64_t n = varint(&p);
            const unsigned char *inner = p, *inner_end = p + n;
            p += n;
            if (key == (3 << 3 | 2))
                snprintf(seen->version, sizeof seen->version, "%.*s", (int)n, (const char *)inner);
            else
                assert_int_equal(key, 5 << 3 | 2);
            while (key == (5 << 3 | 2) && inner < inner_end) {
                assert_int_equal(varint(&inner), 1 << 3 | 2);
                const uint64_t m = varint(&inner);
                read_value(inner, m, seen);
                inner += m;
            }
        }
    }
    assert_ptr_equal(p, end);
}

static uint32_t unmask(uint32_t masked)
{
    const uint32_t turned = masked - 0xA282EAD8u;
    return turned >> 17 | turned << 15;
}

/* Read the only file of a folder. Returns the number of events. */
static int read_all(const char *dir, struct seen *seen, int room)
{
    char path[600] = "";
    static unsigned char data[65536];
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    closedir(folder);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint64_t length;
    uint32_t crc;
    int n = 0;
    while (fread(&length, 8, 1, file) == 1) {
        assert_true(n < room && length < sizeof data);
        assert_int_equal(fread(&crc, 4, 1, file), 1);
        assert_int_equal(unmask(crc), crc32c(&length, 8));
        assert_int_equal(fread(data, 1, length, file), length);
        assert_int_equal(fread(&crc, 4, 1, file), 1);
        assert_int_equal(unmask(crc), crc32c(data, length));
        seen[n] = (struct seen){0};
        read_event(data, length, &seen[n++]);
    }
    fclose(file);
    return n;
}

static void event_file__is_read_back_as_it_was_written(void **state)
{
    (void)state;
    struct event_file *file = NULL;
    struct err err = {0};
    struct seen seen[8];
    const char *dir = at("events");
    assert_int_equal(event_file_open(dir, &file, &err), OK);
    const struct event_scalar first[] = {
        {"train/loss", 2.25},
        {"train/lr",   0.5 }
    };
    const struct event_scalar later[] = {
        {"train/loss",    NAN },
        {"eval/accuracy", 0.75}
    };
    assert_int_equal(event_file_write(file, 1, first, 2, &err), OK);
    assert_int_equal(event_file_write(file, 300, later, 2, &err), OK);
    event_file_close(file);
    assert_int_equal(read_all(dir, seen, 8), 3);
    assert_string_equal(seen[0].version, "brain.Event:2");
    assert_int_equal(seen[1].step, 1);
    assert_string_equal(seen[1].text, "train/loss=2.25 train/lr=0.5 ");
    assert_int_equal(seen[2].step, 300);
    assert_string_equal(seen[2].text, "eval/accuracy=0.75 ");
    assert_true(seen[0].wall > 1.6e9 && seen[2].wall >= seen[0].wall);
}

static void event_file__says_where_it_cannot_be(void **state)
{
    (void)state;
    struct event_file *file = NULL;
    struct err err = {0};
    assert_int_equal(event_file_open("/dev/null/events", &file, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "/dev/null/events"));
    assert_null(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c__is_that_of_the_rfc),
        cmocka_unit_test(event_file__is_read_back_as_it_was_written),
        cmocka_unit_test(event_file__says_where_it_cannot_be),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
