#include "cli/figures/report_page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char style[] =
    "body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1080px;"
    " margin: 0 auto; padding: 1em; }\n"
    "h1 { font-size: 1.6em; line-height: 1.2; margin: .5em 0 .2em; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 1.3em; margin: 2em 0 .5em; border-bottom: 2px solid #0072B2;"
    " overflow-wrap: anywhere; }\n"
    "h3 { font-size: 1.05em; margin: 1.5em 0 .3em; }\n"
    ".verdict { background: #EAF3FA; border-left: 5px solid #0072B2; padding: .6em 1em;"
    " margin: 1em 0; }\n"
    ".verdict p { margin: .3em 0; }\n"
    ".note, figcaption, footer { color: #555; font-size: .9em; }\n"
    ".scroll, figure { overflow-x: auto; margin: .8em 0; }\n"
    "table { border-collapse: collapse; font-variant-numeric: tabular-nums; }\n"
    "th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left;"
    " vertical-align: top; }\n"
    "th { font-weight: 600; }\n"
    ".columns td, .columns th { text-align: right; white-space: nowrap; }\n"
    ".columns td:first-child, .columns th:first-child { text-align: left; }\n"
    "td { overflow-wrap: anywhere; }\n"
    "figure svg { display: block; width: 100%; min-width: min(760px, var(--width));"
    " max-width: calc(1.1 * var(--width)); height: auto; }\n"
    "pre { overflow-x: auto; background: #f5f5f5; padding: .7em; font-size: .85em; }\n"
    "code { background: #f2f2f2; padding: 0 .2em; overflow-wrap: anywhere; }\n"
    "dt { font-weight: 600; } dd { margin: 0 0 .5em 1.2em; }\n"
    "@media (max-width: 600px) { body { padding: .6em; } th, td { padding: .25em .4em; }"
    " figure svg { min-width: min(640px, var(--width)); } dd { margin-left: .6em; }"
    " .wide::after { content: 'Swipe the table to see its right side.'; display: block;"
    " position: sticky; left: 0; width: 100%; color: #555; font-size: .9em; }"
    " figcaption::after { content: ' (Swipe the figure to see its right side.)'; } }\n"
    "@page { margin: 1.5cm; }\n"
    "@media print { * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }"
    " body { font-size: 11px; max-width: none; padding: 0; } h2, h3 { break-after: avoid; }"
    " figure, tr, dt, .verdict { break-inside: avoid; } dt { break-after: avoid; }"
    " .scroll, figure, pre { overflow: visible; } pre { white-space: pre-wrap; }"
    " figure svg { min-width: 0; max-height: 10cm; } dl { columns: 2; }"
    " .columns th, .columns td { padding: .15em .35em; } details { display: none; } }\n";

void page_text(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void put_format(FILE *out, const char *format, va_list list)
{
    char *text = NULL;
    if (vasprintf(&text, format, list) < 0)
        text = NULL;
    page_text(out, text);
    free(text);
}

void page_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          out);
    page_text(out, title);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    page_text(out, title);
    fputs("</h1>\n", out);
}

void page_end(FILE *out)
{
    fputs("</body>\n</html>\n", out);
}

void page_put(FILE *out, const char *tag, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(out, "<%s>", tag);
    put_format(out, format, list);
    fprintf(out, "</%s>\n", tag);
    va_end(list);
}

void page_row(FILE *out, const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("<tr><th>", out);
    page_text(out, name);
    fputs("</th><td>", out);
    put_format(out, format, list);
    fputs("</td></tr>\n", out);
    va_end(list);
}

void page_table(FILE *out, const char *heads)
{
    fprintf(out, "<div class=\"scroll%s\"><table%s>\n", heads ? " wide" : "",
            heads ? " class=\"columns\"" : "");
    if (!heads)
        return;
    fputs("<tr>", out);
    while (*heads) {
        const size_t length = strcspn(heads, "|");
        fprintf(out, "<th>%.*s</th>", (int)length, heads);
        heads += length + (heads[length] == '|');
    }
    fputs("</tr>\n", out);
}

void page_table_end(FILE *out)
{
    fputs("</table></div>\n", out);
}

/* Copy the <svg> element of a file into the page. Its title would be shown as a tooltip, so the
 * caption takes its place. */
static void copy_svg(FILE *out, FILE *svg, const char *caption)
{
    char line[4096];
    bool inside = false;
    while (fgets(line, sizeof line, svg)) {
        if (strncmp(line, "<svg", 4) == 0) {
            inside = true;
            fputs("<svg role=\"img\" aria-label=\"", out);
            page_text(out, caption);
            fputs("\"\n", out);
        } else if (inside && strncmp(line, "<title>", 7) != 0 && strncmp(line, "<desc>", 6) != 0 &&
                   strncmp(line, "\t<title>", 8) != 0) {
            fputs(line, out);
        }
    }
}

/* The width that the head of an SVG gives, in pixels, so that the page can keep a small figure small;
 * 1000 if it gives none. The file is then at its start. */
static int svg_width(FILE *svg)
{
    char line[256];
    int width = 1000;
    for (int n = 0; n < 8 && fgets(line, sizeof line, svg); n++)
        if (sscanf(line, " width=\"%d", &width) == 1)
            break;
    rewind(svg);
    return width;
}

enum status page_figure(FILE *out, const char *name, const char *caption, struct subject *subjects,
                        int num_subjects, struct err *err)
{
    char path[] = "/tmp/elapse-figure-XXXXXX.svg";
    struct err why = {0};
    FILE *svg = NULL;
    const int fd = mkstemps(path, 4);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM, "cannot make '%s': %s", path, strerror(errno));
    close(fd);
    const struct figure_options options = {.out_path = path};
    enum status rc = figure_draw_subjects(name, subjects, num_subjects, &options, &why);
    if (rc == ERR_INFEASIBLE) { /* nothing to draw; a file that cannot be read is an error */
        fprintf(out, "<p class=\"note\">no figure '%s': ", name);
        page_text(out, why.msg);
        fputs("</p>\n", out);
        rc = OK;
    } else if (rc != OK) {
        err_copy(err, &why);
    } else if (!(svg = fopen(path, "r"))) {
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
    } else {
        fprintf(out, "<figure style=\"--width: %dpx\">\n", svg_width(svg));
        copy_svg(out, svg, caption);
        page_put(out, "figcaption", "%s", caption);
        fputs("</figure>\n", out);
        fclose(svg);
    }
    unlink(path);
    return rc;
}
