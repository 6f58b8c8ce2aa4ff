#include "exec/data/text_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status text_tokens_open(const char *vocab, const char *merges, bool special,
                             struct text_tokens *tokens, struct err *err)
{
    const char *slash = vocab ? strrchr(vocab, '/') : NULL;
    char *beside = NULL;
    enum status rc = OK;
    if (!vocab) {
        tokens->kind = TOKENS_BYTES;
    } else if (tokenizer_named(vocab)) {
        tokens->kind = TOKENS_FILE;
        rc = tokenizer_open(vocab, &tokens->file, err);
        if (rc == OK)
            tokenizer_find_special(tokens->file, special);
    } else {
        tokens->kind = TOKENS_BPE;
        if (!merges &&
            asprintf(&beside, "%.*smerges.txt", slash ? (int)(slash + 1 - vocab) : 0, vocab) < 0)
            return err_nomem(err);
        rc = bpe_open(vocab, merges ? merges : beside, &tokens->bpe, err);
        if (rc == OK && !special)
            markers_clear(&tokens->bpe.markers);
        free(beside);
    }
    return rc;
}

void text_tokens_clear(struct text_tokens *tokens)
{
    bpe_clear(&tokens->bpe);
    tokenizer_free(tokens->file);
    free(tokens->bpe_by_id);
    *tokens = (struct text_tokens){0};
}

int text_tokens_size(const struct text_tokens *tokens)
{
    return tokens->kind == TOKENS_BYTES ? 256
           : tokens->kind == TOKENS_BPE ? tokens->bpe.size
                                        : tokenizer_size(tokens->file);
}

enum status text_tokens_encode(const struct text_tokens *tokens, const char *text, size_t bytes,
                               bool around, struct token_list *list, struct err *err)
{
    enum status rc = OK;
    if (tokens->kind == TOKENS_FILE)
        return tokenizer_encode(tokens->file, text, bytes, around, list, err);
    if (tokens->kind == TOKENS_BPE)
        return bpe_encode(&tokens->bpe, text, bytes, list, err);
    for (size_t i = 0; i < bytes && rc == OK; i++)
        rc = token_list_add(list, (struct token){.id = (unsigned char)text[i]}, err);
    return rc;
}

static void index_bpe(struct text_tokens *tokens)
{
    const struct vocab *vocabs[] = {&tokens->bpe.vocab, &tokens->bpe.markers.table};
    tokens->bpe_by_id = calloc((size_t)tokens->bpe.size + 1, sizeof *tokens->bpe_by_id);
    for (int v = 0; tokens->bpe_by_id && v < 2; v++)
        for (int64_t i = 0; i < vocabs[v]->num_slots; i++)
            if (vocabs[v]->slots[i].length >= 0)
                tokens->bpe_by_id[vocabs[v]->slots[i].id] = &vocabs[v]->slots[i];
}

size_t text_tokens_bytes(struct text_tokens *tokens, int32_t id, char *bytes, size_t size,
                         bool *special)
{
    *special = false;
    if (tokens->kind == TOKENS_FILE)
        return tokenizer_bytes(tokens->file, id, bytes, size, special);
    if (tokens->kind == TOKENS_BYTES) {
        if (size > 0)
            bytes[0] = (char)id;
        return size > 0 && id >= 0 && id < 256;
    }
    if (!tokens->bpe_by_id)
        index_bpe(tokens);
    const struct vocab_slot *slot =
        tokens->bpe_by_id && id >= 0 && id < tokens->bpe.size ? tokens->bpe_by_id[id] : NULL;
    if (!slot)
        return 0;
    const struct vocab *markers = &tokens->bpe.markers.table;
    *special = vocab_holds(markers, slot);
    const size_t n = (size_t)slot->length < size ? (size_t)slot->length : size;
    memcpy(bytes, (*special ? markers->bytes : tokens->bpe.vocab.bytes) + slot->text, n);
    return n;
}

int32_t text_tokens_special(const struct text_tokens *tokens, const char *text)
{
    if (tokens->kind == TOKENS_FILE)
        return tokenizer_id(tokens->file, text);
    return tokens->kind == TOKENS_BPE ? vocab_find(&tokens->bpe.markers.table, text, strlen(text))
                                      : -1;
}
