/* exec/data/inputs.h - inputs of `elapse predict`: pictures, texts or tables without labels, read
 * as the training data were. */
#pragma once

#include "exec/data/dataset.h"
#include "partition/base/options.h"

/* Files and folders, and texts. The texts are borrowed. */
struct inputs {
    const char *const *paths;
    int num_paths;
    const struct option_list *texts, *pairs; /* pairs: the second text of each, or empty */
    int64_t *ends; /* owned, of inputs_open(): of texts, the samples up to the end of each path */
};

/* Open the inputs as the test split of a data set for job->model. Nothing may read the training
 * split. No sample has a label of its own (sample() writes class 0). A model of images takes
 * pictures, and folders of them in any depth, prepared as the training data are with these weights,
 * which are opened for that and for the names of the classes. A model of texts takes tables
 * (data.text and data.text_pair name the columns; "sentence" of GLUE's files where they do not),
 * .txt files with a text a line, and texts. The names of their classes are those of the training
 * table's labels. ERR_SYSTEM: a file is missing. ERR_INPUT: a file of another kind, without rows,
 * or without the columns; the model is not a classifier. The caller releases *dataset with
 * dataset_clear(), inputs with inputs_clear(). */
enum status inputs_open(const struct job *job, const char *weights, struct inputs *inputs,
                        struct dataset *dataset, struct err *err);
void inputs_clear(struct inputs *inputs); /* safe twice */

/* The source of sample `id` of that data set. row: of its file or of the texts, from 1; 0: the
 * file is the sample. NULL: it is one of the texts. */
const char *inputs_place(const struct dataset *dataset, const struct inputs *inputs, int64_t id,
                         int64_t *row);
