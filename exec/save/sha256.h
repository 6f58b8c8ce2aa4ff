/* exec/save/sha256.h - SHA-256 (FIPS 180-4), so that "the same weights" is one comparable line. */
#ifndef ELAPSE_EXEC_SAVE_SHA256_H
#define ELAPSE_EXEC_SAVE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t num_bytes;
    unsigned char block[64];
};

void sha256_init(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *data, size_t size);
void sha256_end(struct sha256 *sha, unsigned char digest[32]);
/* 64 hex digits and the terminating zero. */
void sha256_hex(const unsigned char digest[32], char hex[65]);

#endif
