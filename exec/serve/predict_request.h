/* exec/serve/predict_request.h - `elapse predict`: the classes of pictures, texts and table rows. */
#pragma once

#include "exec/comm/comm.h"
#include "exec/data/inputs.h"
#include "exec/device/cores.h"

enum predict_form { PREDICT_TEXT, PREDICT_CSV, PREDICT_JSON };

struct predict_request {
    const char *weights;  /* checkpoint, or weights that weights_open() knows */
    const char *adapter;  /* folder of adapters beside them; NULL */
    struct inputs inputs; /* none: the test split of the job, whose labels are printed too */
    const char *out, *db; /* out NULL: stdout */
    int64_t top;          /* classes whose probability is printed, the likeliest first; 0: all */
    enum predict_form form;
};

/* Evaluate the weights on the samples and print a row for each, in their order, on rank 0. Every
 * sample is read as training reads it. Collective over comm. Errors of inputs_open() and
 * trainer_eval(); ERR_INPUT: the model is not a classifier. */
enum status predict_request_run(const struct comm *comm, const struct cores *cores,
                                const struct job *job, struct predict_request *q, struct err *err);
