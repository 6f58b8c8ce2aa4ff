/* exec/weights/hf_classes.h - which output of foreign weights is which class: id2label of the config.json
 * beside them. */
#ifndef ELAPSE_EXEC_WEIGHTS_HF_CLASSES_H
#define ELAPSE_EXEC_WEIGHTS_HF_CLASSES_H

#include <stddef.h>

#include "partition/base/status.h"

/* The names of classes. names[num]; NULL: classes have numbers only. Borrowed. */
struct class_names {
    char *const *names;
    int num;
};

/* Read the names of `num` classes from the config.json in a folder. *names stays NULL if there is no
 * file, no id2label of that size, or only LABEL_0, LABEL_1, ... Else the caller owns it: num texts.
 * ERR_INPUT: the file is not JSON, or two classes have one name. */
enum status hf_class_names(const char *folder, int num, char ***names, struct err *err);
void hf_class_names_free(char **names, int num); /* NULL is fine */

/* For each class of the data the output of the weights that has its name, whatever its case:
 * order[num], owned by the caller; NULL: their order is the same, or the names do not tell. note gets a
 * line for people, or "". Errors of hf_class_names(). */
enum status hf_class_order(const char *folder, const struct class_names *data, int **order,
                           char *note, size_t size, struct err *err);

#endif
