/* The test vectors of FIPS 180-4 (NIST, "Secure Hash Standard", example computations). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "exec/save/sha256.h"

static void hash(const char *text, size_t size, size_t piece, char hex[65])
{
    struct sha256 sha;
    unsigned char digest[32];
    sha256_init(&sha);
    for (size_t at = 0; at < size; at += piece)
        sha256_add(&sha, text + at, size - at < piece ? size - at : piece);
    sha256_end(&sha, digest);
    sha256_hex(digest, hex);
}

static void sha256__matches_the_published_vectors(void **state)
{
    static char million[1000000];
    char hex[65];
    (void)state;
    hash("", 0, 1, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    hash("abc", 3, 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    hash(two, strlen(two), 100, hex);
    assert_string_equal(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    memset(million, 'a', sizeof million);
    hash(million, sizeof million, 1000, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void sha256_add__does_not_depend_on_the_pieces(void **state)
{
    static char text[1000];
    char whole[65], pieces[65];
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 7);
    for (size_t size = 50; size < 200; size += 3) {
        hash(text, size, size, whole);
        for (size_t piece = 1; piece < 70; piece += 6) {
            hash(text, size, piece, pieces);
            assert_string_equal(whole, pieces);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256__matches_the_published_vectors),
        cmocka_unit_test(sha256_add__does_not_depend_on_the_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
