/* exec/data/wordpiece.h - BERT's tokenizer, from a vocab.txt.
 *
 * The text is cleaned: control characters and U+FFFD are dropped, and all kinds of space count as a
 * space. It is split at spaces and around every punctuation character and CJK ideograph. If the
 * vocabulary is uncased, the text is lower-cased and loses its accents. Each word is then cut, from
 * the left, into the longest pieces that the vocabulary has; pieces inside a word carry "##" in
 * front. A special token that is spelled out in a text ([SEP]) becomes that token. Source: Devlin et
 * al. 2018, and the behaviour of Hugging Face's BertTokenizer, which gives the same tokens with one
 * exception: a final sigma is lower-cased like any other sigma (as in their fast tokenizer). A
 * struct wordpiece does not change after opening, and any thread may encode. */
#ifndef ELAPSE_EXEC_DATA_WORDPIECE_H
#define ELAPSE_EXEC_DATA_WORDPIECE_H

#include "exec/data/markers.h"
#include "exec/data/vocab.h"
#include "partition/plan/job.h"

struct wordpiece {
    struct vocab vocab;     /* owned */
    struct markers markers; /* owned; without any, special tokens in a text are ordinary text */
    bool lower;
    bool whole_ideographs; /* CJK ideographs are not split off */
    int size;              /* largest id + 1 */
    /* Ids of the special tokens; mask is -1 if the vocabulary has no [MASK]. */
    int32_t pad, unk, cls, sep, mask;
};

/* Read vocab.txt: one piece a line; its id is the number of the line, from 0. LOWER_AUTO: a
 * tokenizer_config.json next to it says whether the vocabulary is uncased; without one it is uncased
 * if no piece but special tokens has a capital letter. ERR_SYSTEM: missing. ERR_INPUT: a piece
 * occurs twice, [PAD], [UNK], [CLS] or [SEP] is missing, or the settings beside it want accents
 * stripped from cased text or kept in lower-cased text. *wp must be zeroed or cleared; the caller
 * owns it. */
enum status wordpiece_open(const char *path, enum lower_case lower_case, struct wordpiece *wp,
                           struct err *err);
void wordpiece_clear(struct wordpiece *wp);

/* Append the tokens of a text, without special tokens, and with the bytes that they stand for.
 * Bytes that are not valid UTF-8 are dropped. ERR_INPUT: over 1 GiB. O(bytes * longest piece). */
enum status wordpiece_encode(const struct wordpiece *wp, const char *text, size_t bytes,
                             struct token_list *tokens, struct err *err);

#endif
