/* cli/commands/cmd_page.c - `elapse page`: the planner as one HTML file (page/page.mk makes it). */
#include "cli/base/command.h"
#include "profiles/base/whole_file.h"

/* The page is embedded in the program, so that it can be copied anywhere. */
__asm__(".pushsection .rodata\n"
        "page_begin:\n"
        ".incbin \"build/page.html\"\n"
        "page_end:\n"
        ".popsection\n");
extern const char page_begin[], page_end[];

static enum status run_page(const struct command *command, int argc, char **argv, struct err *err)
{
    const char *path = NULL;
    const struct option options[] = {
        OPTION("o", STRING, &path, "FILE", "the page to write (required)"),
    };
    struct command_line line = COMMAND_LINE(options, 0);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (!path) {
        rc = err_set(err, ERR_INPUT, "page: -o FILE is missing");
        err_hint(err, "elapse page -o whatif.html");
        return rc;
    }
    struct atomic_file file = {0};
    rc = command_check_page(path, err);
    THEN(output_open(&file, path, err));
    if (rc != OK)
        return rc;
    fwrite(page_begin, 1, (uintptr_t)page_end - (uintptr_t)page_begin, file.out);
    return atomic_close(&file, OK, err);
}

const struct command command_page = {
    .name = "page",
    .args = "-o FILE.html",
    .summary = "the planner in a page for a browser: controls, timeline, memory, sweeps; no server",
    .takes = "",
    .run = run_page,
};
