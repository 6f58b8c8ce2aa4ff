#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct fuzz_parser fuzz_parsers[FUZZ_PARSERS] = {
    {"json",        fuzz_json       },
    {"job",         fuzz_job        },
    {"model",       fuzz_model      },
    {"cluster",     fuzz_cluster    },
    {"plan",        fuzz_plan       },
    {"arrays",      fuzz_arrays     },
    {"evidence",    fuzz_evidence   },
    {"units",       fuzz_units      },
    {"options",     fuzz_options    },
    {"schedule",    fuzz_schedule   },
    {"profile",     fuzz_profile    },
    {"hosts",       fuzz_hosts      },
    {"store",       fuzz_store      },
    {"store_sql",   fuzz_store_sql  },
    {"run",         fuzz_run        },
    {"manifest",    fuzz_manifest   },
    {"safetensors", fuzz_safetensors},
    {"image",       fuzz_image      },
    {"tsv",         fuzz_tsv        },
    {"table",       fuzz_table      },
    {"squad",       fuzz_squad      },
    {"wordpiece",   fuzz_wordpiece  },
    {"bpe",         fuzz_bpe        },
    {"idx",         fuzz_idx        },
    {"cifar",       fuzz_cifar      },
    {"lines",       fuzz_lines      },
    {"json_lines",  fuzz_json_lines },
    {"tokenizer",   fuzz_tokenizer  },
    {"chat",        fuzz_chat       },
    {"jinja",       fuzz_jinja      },
    {"adapter",     fuzz_adapter    },
    {"shards",      fuzz_shards     },
    {"classes",     fuzz_classes    },
    {"run_file",    fuzz_run_file   },
    {"flags",       fuzz_flags      },
    {"losses",      fuzz_losses     },
    {"faults",      fuzz_faults     },
    {"step_trace",  fuzz_step_trace },
    {"measured",    fuzz_measured   },
    {"kind",        fuzz_kind       },
};

static char folder[96];

void fuzz_begin(void)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp)
        tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%.60s/elapse-fuzz.XXXXXX", tmp);
    if (!mkdtemp(folder)) {
        perror("fuzz: mkdtemp");
        exit(3);
    }
}

void fuzz_end(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        fprintf(stderr, "fuzz: cannot remove %s\n", folder);
}

const char *fuzz_path(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s%s%.100s", folder, *name ? "/" : "", name);
    return path[turn];
}

void fuzz_put(const char *name, const void *bytes, size_t size)
{
    FILE *out = fopen(fuzz_path(name), "wb");
    if (!out || (size > 0 && fwrite(bytes, 1, size, out) != size) || fclose(out) != 0)
        fuzz_wrong("the scratch folder cannot be written");
}

const uint8_t *fuzz_part(const uint8_t *data, size_t size, int i, size_t *length)
{
    static const char divider[] = "\n--- next file\n";
    for (;; i--) {
        const uint8_t *end = size > 0 ? memmem(data, size, divider, sizeof divider - 1) : NULL;
        *length = end ? (size_t)(end - data) : size;
        if (i == 0)
            return data;
        const size_t skip = end ? *length + sizeof divider - 1 : size;
        if (skip > 0)
            data += skip;
        size -= skip;
    }
}

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        fuzz_wrong("no memory");
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

static bool is_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

int fuzz_accepted;

bool fuzz_judge(enum status rc, const struct err *err)
{
    if (rc != err->status)
        fuzz_wrong("the error has another status than the call");
    if (rc != OK && (!*err->msg || !is_line(err->msg) || !is_line(err->hint)))
        fuzz_wrong("the error is not one line");
    fuzz_accepted += rc == OK;
    return rc == OK;
}

void fuzz_wrong(const char *what)
{
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}
