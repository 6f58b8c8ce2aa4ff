#include "exec/save/sha256.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>

enum status sha256_digest(const void *data, size_t size, unsigned char digest[SHA256_BYTES],
                          struct err *err)
{
    if (EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL) == 1)
        return OK;
    const char *reason = ERR_reason_error_string(ERR_get_error());
    return err_set(err, ERR_SYSTEM, "libcrypto cannot compute a SHA-256: %s",
                   reason ? reason : "no reason given");
}

void sha256_hex(const unsigned char digest[SHA256_BYTES], char hex[2 * SHA256_BYTES + 1])
{
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
