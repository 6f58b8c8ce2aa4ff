/* Scripts: each case has the words that bash gives the command (judged by hand against bash 5.2). */
#include "profiles/frameworks/shell_words.h"
#include "tests/unit/test.h"

static void assert_words(const char *script, const char *want, int notes)
{
    static char one[] = "eight";
    char *const arguments[] = {one};
    struct shell_words words = {0};
    struct err err = {0};
    char got[2000] = "";
    if (shell_words_read(script, "s.sh", arguments, 1, &words, &err) != OK)
        fail_msg("%s: %s", script, err.msg);
    for (int i = 0; i < words.count; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s<%s>", i ? " " : "",
                 words.word[i]);
    if (strcmp(got, want) != 0)
        fail_msg("%s:\ngot  %s\nwant %s", script, got, want);
    if (json_count(words.notes) != notes)
        fail_msg("%s: %d notes", script, json_count(words.notes));
    shell_words_clear(&words);
}

static void scripts__become_the_words_of_their_command(void **state)
{
    (void)state;
    static const struct {
        const char *script, *words;
        int notes;
    } cases[] = {
        {"python a.py --x 1 # --y 2\n",                                                              "<python> <a.py> <--x> <1>",                     0},
        {"A=(\n --x 1 # --z\n # --y\n)\nrun \"${A[@]}\" --w\n",                                      "<run> <--x> <1> <--w>",                         0},
        {"A=\"--x 1 \\\n --y 2\"\nrun a.py $A\n",                                                    "<run> <a.py> <--x> <1> <--y> <2>",              0},
        {"A=(--x)\nA+=(--y 2)\nB=\"${A[*]}\"\nrun $B '--z=a b'\n",
         "<run> <--x> <--y> <2> <--z=a b>",                                                                                                           0},
        {"N=4\nrun --n ${N:-8} --m ${M:-8} --k $(($N*2+1)) --u $U\n",
         "<run> <--n> <4> <--m> <8> <--k> <9> <--u> <$U>",                                                                                            0},
        {"run --a $1 --b ${2:-two} --c \"$@\"\n",                                                    "<run> <--a> <eight> <--b> <two> <--c> <eight>",
         0                                                                                                                                             },
        {"run --a $(cat x | wc -l) --b `date`\n",                                                    "<run> <--a> <$(cat x | wc -l)> <--b> <`date`>",
         0                                                                                                                                             },
        {"D=fp8\nif [ \"$D\" = \"fp8\" ]; then\nA=(--fp8)\nelse\nA=(--bf16)\nfi\nrun --x ${A[@]}\n",
         "<run> <--x> <--fp8>",                                                                                                                       0},
        {"D=bf16\nif [[ $D == fp8 ]]; then A=--fp8\nelif [ -n \"$D\" ]; then A=--y; else A=--z; "
         "fi\nrun --x $A\n",                                                                "<run> <--x> <--y>",                             0},
        {"A=1\nif [ -f x ]; then\nA=2\nfi\nrun --x $A\n",                                            "<run> <--x> <$A>",                              2},
        {"for i in 1 2; do\n run --a $i --b --c\ndone\nrun --x --y --z --w\n",
         "<run> <--x> <--y> <--z> <--w>",                                                                                                             1},
        {"cat > h <<EOF\n--not a b --flag\nEOF\nrun --x 1 2>&1 | tee log\n",                         "<run> <--x> <1>",                               0},
        {"srun bash -c \"python a.py --x 1 --y 2\"\n",
         "<srun> <bash> <-c> <python> <a.py> <--x> <1> <--y> <2>",                                                                                    0},
        {"--x 1\n--y 2\nlast:word\n",                                                                "<--x> <1> <--y> <2> <last:word>",               0},
        {"A=(\n--x 1\n)\nB=(--y)\n",                                                                 "<--x> <1> <--y>",                               0},
        {"f() {\n run --a --b\n}\nexport Z=3; run --x $Z --y --q &\nwait\n",
         "<run> <--x> <3> <--y> <--q>",                                                                                                               0},
        {"run --moe-layer-freq ([0]*3+[1]*58) --x\n",
         "<run> <--moe-layer-freq> <([0]*3+[1]*58)> <--x>",                                                                                           0},
        {"X=a; Y=${X}b; run --x ${Y} --y \"$X c\"\n",                                                "<run> <--x> <ab> <--y> <a c>",                  0},
        {"case $M in\n8b) L=32;;\n*) L=8;;\nesac\nrun --x $L\n",                                     "<run> <--x> <$L>",                              2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_words(cases[i].script, cases[i].words, cases[i].notes);
}

static void open_quotes__are_refused(void **state)
{
    (void)state;
    static const char *const scripts[] = {"run --x 'a\n", "run --x \"a\n", "A=(--x\n", "run ${A\n"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        struct shell_words words = {0};
        struct err err = {0};
        assert_int_equal(shell_words_read(scripts[i], "s.sh", NULL, 0, &words, &err), ERR_INPUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts__become_the_words_of_their_command),
        cmocka_unit_test(open_quotes__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
