/* exec/weights/hf_classes.h - the class names of weights of others: id2label of the config.json
 * beside them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "partition/model/model.h"

/* The names of classes. names[num]; NULL: classes have numbers only. Borrowed. */
struct class_names {
    char *const *names;
    int num;
};

/* Read the names of `num` classes from the config.json of weights: a folder, or a file beside it.
 * *names stays NULL if there is no such file, no id2label of that size, or only LABEL_0, LABEL_1,
 * ... Else the caller owns it: num texts. ERR_INPUT: the file is not JSON, or two classes have one
 * name. */
enum status hf_class_names(const char *weights, int num, char ***names, struct err *err);
void hf_class_names_free(char **names, int num); /* NULL is fine */

/* For each class of the data the output of the weights that has its name, whatever its case:
 * order[num], owned by the caller; NULL: their order is the same, or the names do not tell. note
 * gets a line for people, or "". Errors of hf_class_names(). */
enum status hf_class_order(const char *weights, const struct class_names *data, int **order,
                           char *note, size_t size, struct err *err);

/* Whether a tensor of ours has a row for each class of a head; and its rows in another order. */
bool hf_is_of_classes(const struct model *model, const char *name);
void hf_order_rows(const float *from, float *to, int classes, int64_t row, const int *order);
