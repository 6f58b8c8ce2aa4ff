/* The wrapper of libcrypto's SHA-256 against the vectors of FIPS 180-4 (NIST, "Secure Hash
 * Standard", example computations, and the empty message of the test vectors of its validation
 * system). */
#include "exec/weights/sha256.h"
#include "tests/unit/test.h"

static void has_digest(const char *text, size_t size, const char *want)
{
    unsigned char digest[SHA256_BYTES];
    char hex[65];
    struct err err = {0};
    if (sha256_digest(text, size, digest, &err) != OK)
        fail_msg("%s", err.msg);
    sha256_hex(digest, hex);
    assert_string_equal(hex, want);
}

static void sha256_digest__matches_the_published_vectors(void **state)
{
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    char *million = malloc(1000000);
    (void)state;
    assert_non_null(million);
    memset(million, 'a', 1000000);
    has_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    has_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    has_digest(two_blocks, strlen(two_blocks),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    has_digest(million, 1000000,
               "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* Threads share what libcrypto sets up at its first use. */
static void sha256_digest__serves_threads_at_the_same_time(void **state)
{
    static char text[64][4096];
    unsigned char alone[64][SHA256_BYTES], together[64][SHA256_BYTES];
    int failed = 0;
    (void)state;
    for (int i = 0; i < 64; i++)
        memset(text[i], i, sizeof text[i]);
#pragma omp parallel for num_threads(8) reduction(+ : failed)
    for (int i = 0; i < 64; i++)
        failed += sha256_digest(text[i], sizeof text[i], together[i], NULL) != OK;
    assert_int_equal(failed, 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(sha256_digest(text[i], sizeof text[i], alone[i], NULL), OK);
    assert_memory_equal(alone, together, sizeof alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_digest__serves_threads_at_the_same_time), /* first use */
        cmocka_unit_test(sha256_digest__matches_the_published_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
