#include "exec/weights/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20 };

static enum status refused(struct err *err)
{
    const char *reason = ERR_reason_error_string(ERR_get_error());
    return err_set(err, ERR_SYSTEM, "libcrypto cannot compute a SHA-256: %s",
                   reason ? reason : "no reason given");
}

enum status sha256_digest(const void *data, size_t size, unsigned char digest[SHA256_BYTES],
                          struct err *err)
{
    return EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL) == 1 ? OK : refused(err);
}

void sha256_begin(struct sha256 *sha)
{
    sha->context = EVP_MD_CTX_new();
    sha->failed = !sha->context || EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL) != 1;
}

void sha256_add(struct sha256 *sha, const void *data, size_t size)
{
    if (!sha->failed)
        sha->failed = EVP_DigestUpdate(sha->context, data, size) != 1;
}

enum status sha256_end(struct sha256 *sha, unsigned char digest[SHA256_BYTES], struct err *err)
{
    if (!sha->failed)
        sha->failed = EVP_DigestFinal_ex(sha->context, digest, NULL) != 1;
    EVP_MD_CTX_free(sha->context);
    sha->context = NULL;
    return sha->failed ? refused(err) : OK;
}

enum status file_sum_read(const char *path, struct file_sum *sum, struct err *err)
{
    struct sha256 sha;
    struct stat st;
    ssize_t got = 0;
    enum status rc = OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe does not hold us */
    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    char *part = malloc(READ_BYTES);
    sum->bytes = 0;
    sha256_begin(&sha);
    if (!S_ISREG(st.st_mode))
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': it is no plain file", path);
    else if (!part)
        rc = err_nomem(err);
    while (rc == OK && (got = read(fd, part, READ_BYTES)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
            break;
        }
        sha256_add(&sha, part, (size_t)got);
        sum->bytes += got;
    }
    const enum status hashed = sha256_end(&sha, sum->sha256, rc == OK ? err : NULL);
    free(part);
    close(fd);
    return rc != OK ? rc : hashed;
}

void sha256_hex(const unsigned char digest[SHA256_BYTES], char hex[SHA256_HEX])
{
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
