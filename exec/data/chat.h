/* exec/data/chat.h - chats as the model's own template writes them, with the tokens that count.
 *
 * The template lies beside the tokenizer: chat_template.jinja, "chat_template" of
 * tokenizer_config.json (of several the one named default), or chat_template.json; the first of these
 * counts. Without one, the tokens of the tokenizer tell ChatML (<|im_start|>) from Llama 3
 * (<|start_header_id|>). Tokens are those of transformers' apply_chat_template().
 *
 * What counts in the loss is what the template puts in {% generation %}; without that statement, the
 * contents of messages whose role is assistant, and the special token that directly follows each. */
#pragma once

#include "exec/data/tokenizer.h"
#include "profiles/json/json.h"

struct chat; /* opaque; does not change */

/* vocab: the file of the tokenizer; NULL: none. Both are borrowed and outlive the chat. ERR_INPUT:
 * there is no template, or it has what is not known (jinja.h); the message names its file. */
enum status chat_open(const char *vocab, const struct tokenizer *tokenizer, struct chat **chat,
                      struct err *err);
void chat_free(struct chat *chat); /* NULL is fine */
/* The file of the template; NULL: it was told by the tokens. */
const char *chat_source(const struct chat *chat);
bool chat_has_date(const struct chat *chat); /* the template writes today's date */

/* Append the tokens of a row's "messages" (and "tools"). A token that counts has end > 0, any other
 * first = end = 0. ERR_INPUT: a message has no role, or the template refuses it; tool_calls without
 * {% generation %}, because what counts of them is not known. */
enum status chat_tokens(const struct chat *chat, const struct json *row, struct token_list *tokens,
                        struct err *err);
