/* Runs gnuplot on a program of settings, data and an embedded script, and checks that the figure is
 * complete. Read gnuplot_begin(), gnuplot_size() and gnuplot_run() first. */
#include "cli/figures/gnuplot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/json/fields.h"

#define SCRIPT_EMBED(name)                                                                         \
    __asm__(".pushsection .rodata\n"                                                               \
            ".globl script_" #name "\n"                                                            \
            "script_" #name ":\n"                                                                  \
            ".incbin \"plots/" #name ".gp\"\n"                                                     \
            ".byte 0\n"                                                                            \
            ".popsection\n");
PLOT_SCRIPTS(SCRIPT_EMBED)

/* The name of the file that gnuplot writes. */
static const char *drawn_to(const struct gnuplot *plot)
{
    return plot->file.temp ? plot->file.temp : plot->file.path;
}

enum status gnuplot_begin(struct gnuplot *plot, const char *out_path, const char *term,
                          struct err *err)
{
    enum status rc;
    if (term && strcmp(term, "dumb") != 0)
        return err_set(err, ERR_INPUT, "--term must be dumb, got '%.64s'", term);
    if (!term == !out_path)
        return err_set(err, ERR_INPUT,
                       "a figure takes one of -o FILE (.svg, .png, .pdf) and --term dumb, got %s",
                       term ? "both" : "neither");
    if (out_path && !path_ends(out_path, ".svg") && !path_ends(out_path, ".png") &&
        !path_ends(out_path, ".pdf"))
        return err_set(err, ERR_INPUT, "-o must end in .svg, .png or .pdf, got '%.200s'", out_path);
    plot->dumb = term != NULL;
    if (!plot->dumb && (rc = output_open(&plot->file, out_path, err)) != OK)
        return rc;
    plot->program = tmpfile();
    if (!plot->program) {
        rc = err_set(err, ERR_SYSTEM, "cannot make a temporary file: %s", strerror(errno));
        gnuplot_clear(plot);
        return rc;
    }
    return OK;
}

void gnuplot_quote(struct gnuplot *plot, const char *text)
{
    fputc('\'', plot->program);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', plot->program);
        if ((unsigned char)*text >= ' ')
            fputc(*text, plot->program);
    }
    fputc('\'', plot->program);
}

/* A path. gnuplot runs what follows a leading '|' as a command, and expands a leading '~'. */
static void quote_path(struct gnuplot *plot, const char *path)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s", *path == '/' ? "" : "./", path) < 0)
        text = NULL;
    gnuplot_quote(plot, text ? text : "");
    free(text);
}

void gnuplot_size(struct gnuplot *plot, int width, int height)
{
    const char *path = plot->file.path;
    FILE *out = plot->program;
    if (plot->dumb)
        fprintf(out, "set terminal dumb %d %d\n", width / 10, height / 16);
    else if (path_ends(path, ".svg"))
        fprintf(out, "set terminal svg size %d,%d font 'sans-serif,13' background 'white'\n", width,
                height);
    else if (path_ends(path, ".png"))
        fprintf(out, "set terminal pngcairo size %d,%d font 'sans,10'\n", width, height);
    else
        fprintf(out, "set terminal pdfcairo size %.2fin,%.2fin font 'sans,10'\n", width / 100.0,
                height / 100.0);
    if (plot->file.out) {
        fputs("set output ", out);
        quote_path(plot, drawn_to(plot));
        fputc('\n', out);
    }
    fputs(script_style, out);
}

/* Run gnuplot with `program` as stdin and `log` as stderr. It is told to open stdin as a file,
 * because else it reads one byte at a time. Returns its exit code, or -1 if waiting for it failed. */
static int run_gnuplot(FILE *program, FILE *log)
{
    int wstatus;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {"gnuplot", "/dev/stdin", NULL};
        if (dup2(fileno(program), STDIN_FILENO) < 0 || dup2(fileno(log), STDERR_FILENO) < 0 ||
            lseek(STDIN_FILENO, 0, SEEK_SET) < 0)
            _exit(127);
        execvp(argv[0], argv);
        _exit(127);
    }
    if (pid < 0)
        return -1;
    while (waitpid(pid, &wstatus, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : -1;
}

/* Whether the figure is complete. gnuplot exits with 0 even if the disk is full, so look at the end
 * of the file, which each format fixes. */
static bool is_whole(const struct gnuplot *plot)
{
    static const char *const ends[] = {"</svg>", "IEND", "%%EOF"};
    char tail[64];
    size_t size = 0;
    FILE *file = fopen(plot->file.temp, "rb");
    if (file && fseek(file, -(long)sizeof tail, SEEK_END) == 0)
        size = fread(tail, 1, sizeof tail, file);
    if (file)
        fclose(file);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (size > 0 && memmem(tail, size, ends[i], strlen(ends[i])))
            return true;
    return false;
}

/* The first line of gnuplot's error output that holds more than blanks and '^'. */
static void first_words(FILE *log, char *line, size_t size)
{
    rewind(log);
    while (fgets(line, (int)size, log)) {
        line[strcspn(line, "\n")] = '\0';
        if (strspn(line, " \t^") != strlen(line))
            return;
    }
    snprintf(line, size, "no reason given");
}

enum status gnuplot_run(struct gnuplot *plot, const char *script, struct err *err)
{
    enum status rc = OK;
    char line[160];
    FILE *log = tmpfile();
    if (!log) {
        rc = err_set(err, ERR_SYSTEM, "cannot make a temporary file: %s", strerror(errno));
        goto out;
    }
    fputs(script, plot->program);
    if (fflush(plot->program) != 0 || ferror(plot->program)) {
        rc = err_set(err, ERR_SYSTEM, "cannot write a temporary file: %s", strerror(errno));
        goto out;
    }
    int code = run_gnuplot(plot->program, log);
    if (code == 127) {
        rc = err_set(err, ERR_SYSTEM, "cannot start 'gnuplot'");
        err_hint(err, "install it, as by apt-get install gnuplot-nox");
    } else if (code != 0) {
        first_words(log, line, sizeof line);
        rc = err_set(err, ERR_SYSTEM, "gnuplot cannot draw '%.200s': %s",
                     plot->file.out ? plot->file.path : "the figure", line);
    } else if (plot->file.temp && !is_whole(plot)) {
        rc = err_set(err, ERR_SYSTEM, "cannot write '%.200s': gnuplot left it incomplete",
                     plot->file.path);
        err_hint(err, "is the disk full?");
    }
out:
    if (log)
        fclose(log);
    if (rc == OK && plot->file.out)
        rc = atomic_close(&plot->file, OK, err);
    return rc;
}

void gnuplot_clear(struct gnuplot *plot)
{
    if (plot->program)
        fclose(plot->program);
    if (plot->file.out)
        atomic_close(&plot->file, ERR_SYSTEM, NULL);
    *plot = (struct gnuplot){0};
}
