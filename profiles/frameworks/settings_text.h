/* profiles/frameworks/settings_text.h - files of settings of other frameworks as JSON. */
#pragma once

#include "partition/base/status.h"
#include "profiles/json/json.h"

/* Read a text as an object: JSON where it begins with a brace; TOML where the file's name ends in
 * .toml; else YAML. Of TOML: tables and keys; of YAML: mappings and lists by indent, lists and mappings
 * in brackets, comments, quotes. Anchors, tags and texts over several lines are refused. A value that
 * is no number, truth or list is a text. *object is the caller's to free. ERR_INPUT with the line.
 * ERR_NOMEM. */
enum status settings_read(const char *text, const char *file, struct json **object,
                          struct err *err);

/* Put blanks in the place of comments (slashes, #) and of commas that nothing follows, outside of
 * texts, as HJSON allows them. */
void settings_without_comments(char *text);
