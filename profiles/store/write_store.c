/* Write the C text of shipped_store, the bytes of a store that has only the shipped profiles:
 * write_store >shipped_store.c. The build runs it. */
#include <stdio.h>

#include "profiles/store/schema.h"

int main(void)
{
    printf("#include \"profiles/store/schema.h\"\nconst unsigned char shipped_store[] = {");
#if SQLITE_HAS_IMAGES
    sqlite3 *db = NULL;
    sqlite3_int64 size = 0;
    unsigned char *bytes = NULL;
    const char *what = "cannot open";
    if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
        schema_apply(db, 0, true, &what) != SQLITE_OK ||
        !(bytes = sqlite3_serialize(db, "main", &size, 0))) {
        fprintf(stderr, "write_store: %s: %s\n", what, db ? sqlite3_errmsg(db) : "out of memory");
        return 1;
    }
    for (sqlite3_int64 i = 0; i < size; i++)
        printf("%d,%s", bytes[i], i % 32 == 31 ? "\n" : "");
    printf("};\nconst long shipped_store_bytes = %lld;\n", (long long)size);
    sqlite3_free(bytes);
    sqlite3_close(db);
#else
    printf("0};\nconst long shipped_store_bytes = 0;\n");
#endif
    return fflush(stdout) ? 1 : 0;
}
