/* Model chains against published counts, and the refusal of everything malformed. */
#include "partition/model/model.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/test.h"

static struct model parse(const char *text)
{
    struct model model = {0};
    struct err err = {0};
    if (model_parse(text, &model, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
    return model;
}

static void vit_b16__has_the_parameters_of_the_spec(void **state)
{
    struct model m = parse("vit-b16");
    (void)state;
    assert_int_equal(m.num_items, 27);
    assert_int_equal(m.num_layers, 12);
    assert_int_equal(m.items[0].params, 742656);
    assert_int_equal(m.items[0].layer, -1);
    for (int l = 0; l < 12; l++) {
        assert_int_equal(m.items[1 + 2 * l].params, 2363904);
        assert_int_equal(m.items[1 + 2 * l].kind, ITEM_ATTENTION);
        assert_int_equal(m.items[1 + 2 * l].layer, l);
        assert_int_equal(m.items[2 + 2 * l].params, 4723968);
        assert_int_equal(m.items[2 + 2 * l].layer, l);
    }
    assert_int_equal(m.items[25].params, 1536);
    assert_int_equal(m.items[26].params, 769000);
    assert_int_equal(m.items[26].layer, 12);
    assert_int_equal(model_total_params(&m), 86567656);
    model_clear(&m);
    model_clear(&m);
}

/* Totals as published, or as counted on the released checkpoints. */
static void presets__have_the_published_totals(void **state)
{
    static const struct {
        const char *name;
        int items;
        int64_t params;
    } cases[] = {
        {"vit-ti16",           27,  5717416         },
        {"vit-s16",            27,  22050664        },
        {"vit-b32",            27,  88224232        },
        {"vit-l16",            51,  304326632       },
        {"vit-l32",            51,  306535400       },
        {"vit-h14",            67,  632045800       },
        {"vit-b16:classes=10", 27,  85806346        },
        {"bert-base",          27,  109482240 + 1538},
        {"bert-base:task=qa",  26,  108891648 + 1538},
        {"bert-base:task=mlm", 26,  109514298       },
        {"bert-large",         51,  335141888 + 2050},
        {"minilm-l6",          15,  22713216 + 770  },
        {"gpt2",               27,  124439808       },
        {"gpt2-medium",        51,  354823168       },
        {"gpt2-large",         75,  774030080       },
        {"gpt2-xl",            99,  1557611200      },
        {"gpt3-175b",          195, 174604259328    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = parse(cases[i].name);
        assert_int_equal(m.num_items, cases[i].items);
        assert_int_equal(model_total_params(&m), cases[i].params);
        model_clear(&m);
    }
}

/* Multiply-adds of a forward as published: Liu et al. 2021, table 1; Peebles and Xie 2023, table 1;
 * Touvron et al. 2021, table 5 of the appendix. Parameters: their checkpoints; DiT has 132,000 to
 * 295,000 more with its fixed positions. */
static void composed__has_the_published_work(void **state)
{
    static const struct {
        const char *name;
        double macs;
        int64_t params;
    } cases[] = {
        {"swin-t",             4.5e9,    28288354  },
        {"swin-s",             8.7e9,    49606258  },
        {"swin-b",             15.4e9,   87768224  },
        {"dit-s/2",            6.06e9,   32865056  },
        {"dit-b/2",            23.01e9,  130315808 },
        {"dit-xl/2",           118.64e9, 674834720 },
        {"deit-b16-distilled", 17.6e9,   87338192  },
        {"clip-vit-l14",       0,        427616513 },
        {"whisper-large-v3",   0,        1543490560},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = parse(cases[i].name);
        double flops = 0;
        for (int k = 0; k < m.num_items; k++)
            flops += (double)m.items[k].fwd_flops;
        assert_int_equal(model_total_params(&m), cases[i].params);
        if (cases[i].macs > 0 && fabs(flops / 2 / cases[i].macs - 1) > 0.013)
            fail_msg("%s: %.4g multiply-adds, published %.4g", m.name, flops / 2, cases[i].macs);
        model_clear(&m);
    }
}

/* Raffel et al. 2020: the decoder's layers read the encoder's last output, and its first layer the
 * targets' embedding, which is of the one table. */
static void t5__sends_the_encoder_to_every_layer_of_the_decoder(void **state)
{
    struct model m = parse("t5-small:seq=10,encoder_seq=20");
    (void)state;
    assert_int_equal(m.num_skips, 1 + 6);
    assert_int_equal(m.skips[0].from, 0);
    assert_int_equal(m.skips[0].bytes, 10 * 512 * 4);
    for (int i = 1; i <= 6; i++) {
        const struct skip_edge *skip = &m.skips[i];
        assert_int_equal(skip->from, 13); /* behind 1 + 2 x 6 items */
        assert_int_equal(skip->bytes, 20 * 512 * 4);
        assert_memory_equal(m.items[skip->to].name, "cross", 5);
        assert_int_equal(model_skip_repeats(&m, i, 0), i > 1);
        assert_false(model_skip_repeats(&m, i, skip->to));
    }
    model_clear(&m);
}

static void presets__all_build_and_have_whole_layers(void **state)
{
    int count = 0;
    (void)state;
    const char *name;
    for (; (name = model_preset_name(count)); count++) {
        struct model m = parse(name);
        assert_string_equal(m.name, name);
        assert_true(m.num_items >= m.num_layers);
        for (int i = 0; i < m.num_items; i++) {
            assert_true(m.items[i].act_bytes >= 0 && m.items[i].stash_bytes > 0);
            assert_true(m.items[i].name[0]);
        }
        model_clear(&m);
    }
    assert_true(count > 20);
}

static void flops__split_a_vit_b_layer_36_to_64(void **state)
{
    struct model m = parse("vit-b16");
    double attention = (double)m.items[1].fwd_flops, mlp = (double)m.items[2].fwd_flops;
    (void)state;
    assert_int_equal(m.seq, 197);
    /* 8sh^2 + 4s^2h and 4shm, written out */
    assert_int_equal(m.items[1].fwd_flops,
                     INT64_C(8) * 197 * 768 * 768 + INT64_C(4) * 197 * 197 * 768);
    assert_int_equal(m.items[2].fwd_flops, INT64_C(4) * 197 * 768 * 3072);
    assert_true(attention / (attention + mlp) > 0.355 && attention / (attention + mlp) < 0.365);
    model_clear(&m);
}

static void stash__of_a_vit_b_layer_is_near_the_measured_15_1_mb(void **state)
{
    struct model m = parse("vit-b16"), half = parse("vit-b16:dtype=bf16");
    double mb = (double)(m.items[1].stash_bytes + m.items[2].stash_bytes) / 1e6;
    (void)state;
    assert_true(mb > 15.1 * 0.95 && mb < 15.1 * 1.05);
    assert_true(half.items[1].stash_bytes > m.items[1].stash_bytes / 2);
    assert_true(half.items[1].stash_bytes < m.items[1].stash_bytes * 6 / 10);
    model_clear(&m);
    model_clear(&half);
}

static void act__is_the_published_cache_item(void **state)
{
    struct model m = parse("vit-b16");
    (void)state;
    for (int i = 0; i < 25; i++)
        assert_int_equal(m.items[i].act_bytes, 605184);
    assert_int_equal(m.items[26].act_bytes, 0);
    model_clear(&m);
}

static void gpt__shares_the_token_table_with_its_head(void **state)
{
    struct model m = parse("gpt2");
    const struct item *head = &m.items[m.num_items - 1];
    (void)state;
    assert_int_equal(head->params, 0);
    assert_int_equal(head->tied_params, 50257 * 768);
    assert_int_equal(m.items[0].params, (50257 + 1024) * 768);
    model_clear(&m);
}

/* Under freeze.head alone: the model of F > 0 is one in which the head has the table as its own. */
static void model_at__has_a_head_of_its_own_once_layers_are_frozen(void **state)
{
    static const struct {
        const char *model;
        int64_t own; /* parameters of the head beside the table */
        int64_t table;
    } cases[] = {
        {"gpt2",                                                               0,                       50257 * 768},
        {"bert-base:task=mlm",                                                 768 * 770 + 768 + 30522, 30522 * 768},
        {"llama:layers=2,hidden=32,heads=2,mlp=64,vocab=50,seq=8,tied_head=1", 0,                       50 * 32    },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model m = parse(cases[i].model), copy = {0};
        const int last = m.num_items - 1;
        assert_ptr_equal(model_at(&m, 1), &m);
        assert_int_equal(model_let_head_go_on(&m, NULL), OK);
        assert_int_equal(model_copy(&m, &copy, NULL), OK);
        const struct model *at[] = {model_at(&m, 2), model_at(&copy, 2)};
        assert_ptr_equal(model_at(&m, 0), &m);
        assert_ptr_not_equal(at[0], at[1]);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(at[k]->items[last].params, cases[i].own + cases[i].table);
            assert_int_equal(at[k]->items[last].tied_params, 0);
            assert_false(at[k]->tied_head);
            assert_int_equal(model_total_params(at[k]), model_total_params(&m) + cases[i].table);
            assert_ptr_equal(model_at(at[k], 1), at[k]);
        }
        assert_int_equal(m.items[last].tied_params, cases[i].table);
        for (int n = 0;; n++) {
            struct model again = parse(cases[i].model);
            fail_malloc_after(n);
            const enum status rc = model_let_head_go_on(&again, NULL);
            const bool done = fail_malloc_done();
            assert_int_equal(rc, done ? OK : ERR_NOMEM);
            assert_int_equal(again.untied != NULL, done);
            model_clear(&again);
            if (done)
                break;
        }
        model_clear(&m);
        model_clear(&copy);
    }
    struct model vit = parse("vit-b16");
    assert_int_equal(model_let_head_go_on(&vit, NULL), OK);
    assert_ptr_equal(model_at(&vit, 12), &vit);
    model_clear(&vit);
}

/* Flops are 2 h V a token for the table, and 2 h h for the dense layer of a masked model's head. */
static void weight_ns__lacks_the_table_while_the_embedding_is_frozen(void **state)
{
    static const struct {
        const char *model;
        int64_t tied, alone;
    } cases[] = {
        {"gpt2",                                                               0,    1000},
        {"llama:layers=2,hidden=32,heads=2,mlp=64,vocab=50,seq=8,tied_head=1", 0,    1000},
        {"bert-base:task=mlm,vocab=2304",                                      250,  1000}, /* 768 of 768 + 2304 */
        {"llama:layers=2,hidden=32,heads=2,mlp=64,vocab=50,seq=8,tied_head=0", 1000, 1000},
        {"bert-base:task=qa",                                                  1000, 1000},
        {"vit-b16",                                                            1000, 1000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model m = parse(cases[i].model);
        const int last = m.num_items - 1;
        assert_int_equal(model_weight_ns(&m, last, 0, 1000), 1000);
        assert_int_equal(model_weight_ns(&m, last, 1, 1000), cases[i].tied);
        assert_int_equal(model_weight_ns(&m, last, m.num_layers, 1000), cases[i].tied);
        for (int item = 0; item < last; item++)
            assert_int_equal(model_weight_ns(&m, item, 1, 1000), 1000);
        assert_int_equal(model_let_head_go_on(&m, NULL), OK);
        assert_int_equal(model_weight_ns(model_at(&m, 1), last, 1, 1000), cases[i].alone);
        m.lora.rank =
            4; /* the table's gradient is left out at any F, and so in what was measured */
        assert_int_equal(model_weight_ns(&m, last, 1, 1000), 1000);
        model_clear(&m);
    }
}

static void frozen_items__are_the_embedding_and_two_per_layer(void **state)
{
    static const char *const names[] = {"vit-b16", "bert-base:task=qa", "gpt2"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct model m = parse(names[i]);
        assert_int_equal(model_frozen_items(&m, 0), 0);
        for (int f = 1; f <= m.num_layers; f++)
            assert_int_equal(model_frozen_items(&m, f), 1 + 2 * f);
        model_clear(&m);
    }
    struct model uniform = parse("uniform:layers=8");
    assert_int_equal(model_frozen_items(&uniform, 0), 0);
    assert_int_equal(model_frozen_items(&uniform, 3), 3);
    assert_int_equal(model_frozen_items(&uniform, 8), 8);
    model_clear(&uniform);
}

static void uniform__has_one_item_a_layer_with_its_constants(void **state)
{
    struct model m = parse("uniform:layers=8,fwd=1ms,bwd_input=2ms,bwd_weight=3ms,act=1MiB,"
                           "params=1000000");
    (void)state;
    assert_int_equal(m.family, FAMILY_UNIFORM);
    assert_true(m.per_microbatch);
    assert_int_equal(m.num_items, 8);
    assert_int_equal(m.num_layers, 8);
    for (int i = 0; i < 8; i++) {
        const struct item *item = &m.items[i];
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        assert_string_equal(item->name, name);
        assert_int_equal(item->layer, i);
        assert_int_equal(item->kind, ITEM_OPAQUE);
        assert_int_equal(item->fwd_ns, 1000000);
        assert_int_equal(item->bwd_input_ns, 2000000);
        assert_int_equal(item->bwd_weight_ns, 3000000);
        assert_int_equal(item->update_ns, 0);
        assert_int_equal(item->act_bytes, 1 << 20);
        assert_int_equal(item->stash_bytes, 1 << 20);
        assert_int_equal(item->params, 1000000);
    }
    model_clear(&m);
    m = parse("uniform:layers=2,stash=0B,update=5us");
    assert_int_equal(m.items[1].stash_bytes, 0);
    assert_int_equal(m.items[1].update_ns, 5000);
    model_clear(&m);
}

static void unet_skips__join_block_i_to_block_l_minus_1_minus_i(void **state)
{
    struct model plain = parse("vit-tiny:layers=5"), m = parse("vit-tiny:layers=5,unet_skips=1");
    (void)state;
    assert_int_equal(m.num_skips, 2);
    assert_string_equal(m.items[m.skips[0].from].name, "mlp0");
    assert_string_equal(m.items[m.skips[0].to].name, "attn4");
    assert_string_equal(m.items[m.skips[1].from].name, "mlp1");
    assert_string_equal(m.items[m.skips[1].to].name, "attn3");
    assert_int_equal(m.skips[0].bytes, m.items[0].act_bytes);
    /* each entered block has a linear from 2h to h */
    assert_int_equal(model_total_params(&m) - model_total_params(&plain),
                     2 * (2 * 192 * 192 + 192));
    model_clear(&plain);
    model_clear(&m);
}

static void modifiers__change_what_they_name(void **state)
{
    struct model m = parse("vit-b16:image=384,classes=10,layers=2");
    (void)state;
    assert_int_equal(m.seq, 24 * 24 + 1);
    assert_int_equal(m.classes, 10);
    assert_int_equal(m.num_items, 7);
    model_clear(&m);
    m = parse("bert-large:task=qa,seq=384");
    assert_int_equal(m.task, TASK_QA);
    assert_int_equal(m.seq, 384);
    assert_int_equal(m.items[0].act_bytes, 384 * 1024 * 4);
    model_clear(&m);
}

static void parse__refuses_what_it_does_not_know(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"vit-b61",                                     "did you mean 'vit-b16'"    },
        {"gpt9",                                        "unknown model 'gpt9'"      },
        {"",                                            "name of a model"           },
        {":classes=3",                                  "name of a model"           },
        {"vit-b16:clases=3",                            "did you mean 'classes'"    },
        {"vit-b16:vocab=3",                             "no key 'vocab'"            },
        {"vit-b16:classes",                             "key=value"                 },
        {"vit-b16:classes=",                            "key=value"                 },
        {"vit-b16:=3",                                  "key=value"                 },
        {"vit-b16:classes=10,",                         "last comma"                },
        {"vit-b16:classes=0",                           "classes must be 1.."       },
        {"vit-b16:classes=-1",                          "classes must be 1.."       },
        {"vit-b16:classes=ten",                         "classes must be 1.."       },
        {"vit-b16:layers=1000000000",                   "layers must be 1..65535"   },
        {"vit-b16:heads=5",                             "not a multiple of heads 5" },
        {"vit-b16:image=225",                           "not a multiple of patch 16"},
        {"vit-b16:image=65536,patch=1",                 "patches"                   },
        {"vit-b16:dtype=int8",                          "must be fp32|bf16|tf32|"   },
        {"bert-base:task=translate",                    "must be classify|qa|mlm"   },
        {"bert-base:seq=513",                           "seq must be 1..512"        },
        {"gpt2:classes=3",                              "no key 'classes'"          },
        {"uniform:layers=0",                            "layers must be 1.."        },
        {"uniform:fwd=5",                               "needs a unit"              },
        {"uniform:fwd=-5ms",                            "not be negative"           },
        {"uniform:params=-1",                           "params must be at least 0" },
        {"uniform:layers=4,params=9223372036854775807", "params overflows"          },
        {"uniform:layers=4,act=4000000TB",              "act_bytes overflows"       },
        {"uniform:layers=16,fwd=1000000000s",           "times overflows"           },
        {"uniform:layers=4,fwd=5000000000s",            "fwd is too large"          },
        {"uniform:forward=1ms",                         "no key 'forward'"          },
        {"gpt3-175b:hidden=1048576,mlp=1048576,heads=1,seq=1048576,max_seq=1048576,"
         "layers=65535",                       "overflows"                 }
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model m = {0};
        struct err err = {0};
        enum status rc = model_parse(cases[i].text, &m, &err);
        if (rc != ERR_INPUT || !strstr(err.msg, cases[i].says) || m.items)
            fail_msg("'%s': status %d, '%s'", cases[i].text, (int)rc, err.msg);
    }
}

static void build__checks_a_spec_made_by_hand(void **state)
{
    struct model_spec good, spec;
    struct model m = {0};
    (void)state;
    assert_int_equal(model_preset("vit-tiny", &good, NULL), OK);
    spec = good;
    spec.hidden = -192;
    assert_int_equal(model_build(&spec, &m, NULL), ERR_INPUT);
    spec = good;
    spec.num_layers = 1 << 30;
    assert_int_equal(model_build(&spec, &m, NULL), ERR_INPUT);
    spec = good;
    spec.elem_bytes = 3;
    assert_int_equal(model_build(&spec, &m, NULL), ERR_INPUT);
    spec = good;
    spec.patch = -4;
    assert_int_equal(model_build(&spec, &m, NULL), ERR_INPUT);
    spec = good;
    spec.family = FAMILY_EXPLICIT;
    assert_int_equal(model_build(&spec, &m, NULL), ERR_INPUT);
    spec = (struct model_spec){.family = FAMILY_GPT}; /* zeros: the family's first preset */
    assert_int_equal(model_build(&spec, &m, NULL), OK);
    assert_int_equal(model_total_params(&m), 124439808);
    model_clear(&m);
}

static struct item opaque(int layer, int64_t bytes)
{
    return (struct item){.name = "x", .kind = ITEM_OPAQUE, .layer = layer, .act_bytes = bytes};
}

static void explicit__keeps_a_chain_with_sorted_skips(void **state)
{
    struct item items[] = {opaque(-1, 1), opaque(0, 2), opaque(0, 3), opaque(1, 4), opaque(2, 5)};
    struct skip_edge skips[] = {
        {2, 4, 9},
        {0, 3, 8},
        {0, 2, 7}
    };
    struct model m = {0}, copy = {0};
    (void)state;
    items[4].kind = ITEM_HEAD;
    assert_int_equal(model_explicit("net", items, 5, skips, 3, true, &m, NULL), OK);
    assert_int_equal(m.num_layers, 2); /* the head stands behind them */
    assert_int_equal(m.skips[0].to, 2);
    assert_int_equal(m.skips[1].to, 3);
    assert_int_equal(m.skips[2].from, 2);
    assert_int_equal(model_frozen_items(&m, 1), 3);
    assert_int_equal(model_copy(&m, &copy, NULL), OK);
    model_clear(&m);
    assert_int_equal(copy.items[3].act_bytes, 4);
    assert_int_equal(copy.skips[2].bytes, 9);
    model_clear(&copy);
}

static void explicit__refuses_bad_chains(void **state)
{
    struct item good[] = {opaque(0, 1), opaque(1, 2), opaque(2, 3)}, bad[3];
    static const struct skip_edge edges[] = {
        {1,  1, 0 },
        {2,  0, 0 },
        {-1, 2, 0 },
        {0,  3, 0 },
        {0,  2, -1}
    };
    struct model m = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(model_explicit("e", good, 0, NULL, 0, true, &m, NULL), ERR_INPUT);
    assert_int_equal(model_explicit("e", good, -1, NULL, 0, true, &m, NULL), ERR_INPUT);
    for (int i = 0; i < 5; i++)
        assert_int_equal(model_explicit("e", good, 3, &edges[i], 1, true, &m, NULL), ERR_INPUT);
    memcpy(bad, good, sizeof bad);
    bad[1].stash_bytes = -1;
    assert_int_equal(model_explicit("e", bad, 3, NULL, 0, true, &m, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "item 1: stash_bytes"));
    memcpy(bad, good, sizeof bad);
    bad[1].fwd_stash_ns = bad[1].fwd_ns + 1;
    err = (struct err){0};
    assert_int_equal(model_explicit("e", bad, 3, NULL, 0, true, &m, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "item 1: fwd_stash_ns must be at most fwd_ns, "));
    memcpy(bad, good, sizeof bad);
    bad[0].fwd_ns = bad[1].fwd_ns = INT64_MAX;
    assert_int_equal(model_explicit("e", bad, 3, NULL, 0, true, &m, NULL), ERR_INPUT);
    memcpy(bad, good, sizeof bad);
    bad[2].layer = 0;
    assert_int_equal(model_explicit("e", bad, 3, NULL, 0, true, &m, NULL), ERR_INPUT);
    memcpy(bad, good, sizeof bad);
    bad[2].kind = ITEM_KIND_COUNT;
    assert_int_equal(model_explicit("e", bad, 3, NULL, 0, true, &m, NULL), ERR_INPUT);
    assert_null(m.items);
}

static void models__survive_the_failure_of_any_allocation(void **state)
{
    static const char *const texts[] = {"vit-tiny:unet_skips=1", "gpt2", "uniform:layers=3",
                                        "t5-small"};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct model m = {0}, copy = {0};
        for (int n = 0;; n++) {
            fail_malloc_after(n);
            enum status rc = model_parse(texts[i], &m, NULL);
            if (fail_malloc_done())
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(m.items);
        }
        for (int n = 0;; n++) {
            fail_malloc_after(n);
            enum status rc = model_copy(&m, &copy, NULL);
            if (fail_malloc_done())
                break;
            assert_int_equal(rc, ERR_NOMEM);
            assert_null(copy.items);
        }
        assert_int_equal(model_total_params(&m), model_total_params(&copy));
        model_clear(&m);
        model_clear(&copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vit_b16__has_the_parameters_of_the_spec),
        cmocka_unit_test(presets__have_the_published_totals),
        cmocka_unit_test(composed__has_the_published_work),
        cmocka_unit_test(t5__sends_the_encoder_to_every_layer_of_the_decoder),
        cmocka_unit_test(presets__all_build_and_have_whole_layers),
        cmocka_unit_test(flops__split_a_vit_b_layer_36_to_64),
        cmocka_unit_test(stash__of_a_vit_b_layer_is_near_the_measured_15_1_mb),
        cmocka_unit_test(act__is_the_published_cache_item),
        cmocka_unit_test(gpt__shares_the_token_table_with_its_head),
        cmocka_unit_test(model_at__has_a_head_of_its_own_once_layers_are_frozen),
        cmocka_unit_test(weight_ns__lacks_the_table_while_the_embedding_is_frozen),
        cmocka_unit_test(frozen_items__are_the_embedding_and_two_per_layer),
        cmocka_unit_test(uniform__has_one_item_a_layer_with_its_constants),
        cmocka_unit_test(unet_skips__join_block_i_to_block_l_minus_1_minus_i),
        cmocka_unit_test(modifiers__change_what_they_name),
        cmocka_unit_test(parse__refuses_what_it_does_not_know),
        cmocka_unit_test(build__checks_a_spec_made_by_hand),
        cmocka_unit_test(explicit__keeps_a_chain_with_sorted_skips),
        cmocka_unit_test(explicit__refuses_bad_chains),
        cmocka_unit_test(models__survive_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
