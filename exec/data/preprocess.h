/* exec/data/preprocess.h - how the pictures of a checkpoint are prepared: Hugging Face's
 * preprocessor_config.json.
 *
 * A picture is scaled, its middle is cut out, and a byte p becomes (p * factor - mean) / deviation.
 * Values are within one level of 255 of those of transformers' image processors. */
#pragma once

#include <stdbool.h>

#include "exec/data/resample.h"

struct preprocess {
    char *text; /* owned: the JSON that was read; NULL: there is none */
    bool resizes;
    int height, width; /* after scaling; 0: by shortest_edge */
    int shortest_edge; /* of the scaled picture, whose proportions stay */
    enum resample resample;
    bool crops;
    int crop_height, crop_width;
    float mean[3], deviation[3]; /* of p / 255, so that they hold factor */
};

void preprocess_clear(struct preprocess *rules);

/* Read the rules beside weights: a checkpoint of ours whose run had such rules, a folder with
 * preprocessor_config.json, or a file in such a folder. rules->text stays NULL if there are none.
 * ERR_INPUT: not JSON, a kind of processor or a key that is not known, a value out of range; the message
 * names the file. */
enum status preprocess_read(const char *weights, struct preprocess *rules, struct err *err);

/* Refuse rules that do not end in side x side pixels. */
enum status preprocess_check_side(const struct preprocess *rules, int side, struct err *err);

/* Refuse a picture that the rules do not bring to side x side pixels. */
enum status preprocess_check(const struct preprocess *rules, const char *path,
                             const struct pixels *pixels, int side, struct err *err);

/* The red, green and blue planes of a prepared picture that preprocess_check() accepts, each side x side.
 * ERR_NOMEM. */
enum status preprocess_apply(const struct preprocess *rules, const struct pixels *pixels, int side,
                             float *planes, struct err *err);
