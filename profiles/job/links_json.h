/* profiles/job/links_json.h - the rates of a cluster object: curves by message size, and
 * collectives. */
#pragma once

#include "partition/cluster/cluster.h"
#include "profiles/json/fields.h"
#include "profiles/json/json.h"

/* A rate by message size: that of large messages, and the shares of it. 0: not given. */
struct sized_rate {
    double bytes_per_s;
    struct share_curve shares;
};
struct link_rates {
    struct sized_rate link, uplink;
};

/* Read "link" and "uplink" of a cluster object. ERR_INPUT names the key. */
enum status link_rates_from_json(const struct json *object, const char *file, const char *key,
                                 struct link_rates *rates, struct err *err);
/* Read "collective" of a cluster object, if there is one. Its rates are those of the cluster's
 * fastest port and uplink. ERR_INPUT names the key. */
enum status collectives_from_json(const struct json *object, const char *file, const char *key,
                                  struct cluster *cluster, struct err *err);

/* fields_each() of the keys of "collective". */
void collective_keys_each(key_visitor *visit, void *ctx);
