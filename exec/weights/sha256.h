/* exec/weights/sha256.h - SHA-256 (FIPS 180-4) by OpenSSL's libcrypto, which uses the processor's SHA
 * instructions. The only place that calls libcrypto. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"

enum { SHA256_BYTES = 32, SHA256_HEX = 2 * SHA256_BYTES + 1 };

/* The digest of size bytes at data. Threads may call it at the same time.
 * Returns OK, ERR_SYSTEM (libcrypto refuses, or has no memory). */
enum status sha256_digest(const void *data, size_t size, unsigned char digest[SHA256_BYTES],
                          struct err *err);

/* A digest in parts: begin, add any number of times, end. A failure of any call is kept and
 * returned by sha256_end(), which must be called once. One thread at a time uses an object. */
struct sha256 {
    void *context; /* private */
    bool failed;
};
void sha256_begin(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *data, size_t size);
enum status sha256_end(struct sha256 *sha, unsigned char digest[SHA256_BYTES], struct err *err);

/* Length and digest of a file: what a reader checks it by. */
struct file_sum {
    int64_t bytes;
    unsigned char sha256[SHA256_BYTES];
};
/* Read a whole file once. ERR_SYSTEM: it cannot be read, or is no plain file. */
enum status file_sum_read(const char *path, struct file_sum *sum, struct err *err);

/* 64 hex digits and the terminating zero. */
void sha256_hex(const unsigned char digest[SHA256_BYTES], char hex[SHA256_HEX]);
