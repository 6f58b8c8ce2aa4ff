/* exec/save/sha256.h - SHA-256 (FIPS 180-4) by OpenSSL's libcrypto, which uses the processor's SHA
 * instructions. The only place that calls libcrypto. */
#ifndef ELAPSE_EXEC_SAVE_SHA256_H
#define ELAPSE_EXEC_SAVE_SHA256_H

#include <stddef.h>

#include "partition/status.h"

enum { SHA256_BYTES = 32 };

/* The digest of size bytes at data. Threads may call it at the same time.
 * Returns OK, ERR_SYSTEM (libcrypto refuses, or has no memory). */
enum status sha256_digest(const void *data, size_t size, unsigned char digest[SHA256_BYTES],
                          struct err *err);

/* 64 hex digits and the terminating zero. */
void sha256_hex(const unsigned char digest[SHA256_BYTES], char hex[2 * SHA256_BYTES + 1]);

#endif
