/* profiles/job/kind_json.h - device kinds from JSON and to JSON.
 *
 * One set of keys serves the shipped files of profiles/devices, a user's files and the objects of jobs
 * and clusters: the keys of kind_figures, each also by its short form ("mem": "24GiB"), and
 *
 *   like      the kind whose figures hold where this object gives none
 *   name      the name in answers; in a file the file's name counts
 *   kernels   the kind whose measured kernels the curve's constants describe
 *   source    where this object's figures are from; `sources` has an own text for a figure or a group
 *
 * A user's files are NAME.json in $XDG_CONFIG_HOME/elapse/devices, else ~/.config/elapse/devices. */
#pragma once

#include "partition/cluster/device_kinds.h"
#include "profiles/json/fields.h"
#include "profiles/json/json.h"

/* Read an object. *kind is fresh, with one owner: kind_release(). Kinds that it is like come from the
 * shipped ones and the user's files. ERR_INPUT: an unknown key, a figure that is missing, doubled or
 * out of range, a kind that is like itself. */
enum status kind_from_json(const struct json *object, const struct fields_source *source,
                           struct kind **kind, struct err *err);
/* Like the function above, for a file. Its `like` may also name a file in the same folder. */
enum status kind_read_file(const char *path, struct kind **kind, struct err *err);
/* Find a user's file of that name. *kind is NULL if there is none, else fresh. ERR_INPUT also where a
 * user's file has the name of a shipped kind. */
enum status kind_find_own(const char *name, struct kind **kind, struct err *err);
/* Call visit for the names of the user's files, in alphabetical order, until one is refused. */
enum status kind_own_names(enum status (*visit)(const char *name, void *ctx, struct err *err),
                           void *ctx, struct err *err);
/* Add every figure of a kind and its sources to an object that kind_from_json() reads. */
void kind_to_json(const struct kind *kind, struct json *to);

/* ERR_INPUT: "WHAT 'NAME', nearest is ...", with the shipped kinds as the hint. */
enum status kind_unknown(const char *what, const char *name, struct err *err);

/* fields_each() of the keys. */
void kind_keys_each(key_visitor *visit, void *ctx);
