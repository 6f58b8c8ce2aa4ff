#include "profiles/json/build_facts.h"

#include <cjson/cJSON.h>
#include <sqlite3.h>
#include <stdio.h>

enum { NUM_FACTS = 9 };

static void list_facts(const char *facts[NUM_FACTS][2])
{
    const char *const all[NUM_FACTS][2] = {
        {"commit",     build_facts.commit    },
        {"date",       build_facts.date      },
        {"compiler",   build_facts.compiler  },
        {"flags",      build_facts.flags     },
        {"mpi",        build_facts.mpi       },
        {"blas",       build_facts.blas      },
        {"cuda",       build_facts.cuda      },
        {"cuda_archs", build_facts.cuda_archs},
        {"sqlite",     sqlite3_libversion()  },
    };
    for (int i = 0; i < NUM_FACTS; i++) {
        facts[i][0] = all[i][0];
        facts[i][1] = all[i][1];
    }
}

const char *build_libraries(char *buf, size_t size)
{
    snprintf(buf, size, "SQLite %s, cJSON %s", sqlite3_libversion(), cJSON_Version());
    return buf;
}

void build_facts_print(const char *program)
{
    const char *facts[NUM_FACTS][2];
    list_facts(facts);
    printf("%s %s\n", program, build_facts.version);
    for (int i = 0; i < NUM_FACTS; i++)
        if (*facts[i][1])
            printf("  %-10s %s\n", facts[i][0], facts[i][1]);
}

void build_facts_to_json(struct json *object)
{
    const char *facts[NUM_FACTS][2];
    list_facts(facts);
    for (int i = 0; i < NUM_FACTS; i++)
        json_add_string(object, facts[i][0], facts[i][1]);
}
