/* cli/figures/report_page.h - the HTML of a report: text, tables and inline figures. One file without links
 * to anything outside. It reads well at 400 pixels and on paper. */
#pragma once

#include <stdio.h>

#include "cli/figures/figures.h"

/* The head of the page up to its first heading, and its end. */
void page_begin(FILE *out, const char *title);
void page_end(FILE *out);

/* Write text with HTML's own characters escaped. */
void page_text(FILE *out, const char *text);
/* Write <tag>text</tag>; printf() format. */
void page_put(FILE *out, const char *tag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Write a row of a table of names and values; printf() format for the value. */
void page_row(FILE *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Begin and end a table that scrolls where it is wider than the page. heads: column names separated
 * by '|'; NULL: a table of names and values. */
void page_table(FILE *out, const char *heads);
void page_table_end(FILE *out);

/* Draw a figure of the subjects into the page, with a caption. ERR_INFEASIBLE and ERR_INPUT, which
 * say that the subjects have nothing to draw, become a note on the page; other errors pass. */
enum status page_figure(FILE *out, const char *name, const char *caption, struct subject *subjects,
                        int num_subjects, struct err *err);
