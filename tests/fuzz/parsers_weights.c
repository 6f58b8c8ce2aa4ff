/* What lies beside weights of others, and measured runs of others. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/weights/adapter_files.h"
#include "exec/weights/hf_classes.h"
#include "exec/weights/weights_files.h"
#include "profiles/store/run_file.h"
#include "tests/fuzz/fuzz.h"

/* adapter_config.json */
void fuzz_adapter(const uint8_t *data, size_t size)
{
    struct lora_ask ask;
    struct err err = {0};
    fuzz_put("adapter_config.json", data, size);
    if (fuzz_judge(adapter_files_ask(fuzz_path(""), &ask, &err), &err) &&
        (ask.rank < 1 || !(ask.alpha > 0.0) || !isfinite(ask.alpha) || !ask.targets[0] ||
         !memchr(ask.targets, 0, sizeof ask.targets)))
        fuzz_wrong("adapters of no rank, alpha or targets");
    unlink(fuzz_path("adapter_config.json"));
}

/* model.safetensors.index.json, beside one shard with the tensors "a" and "b.module.c". */
void fuzz_shards(const uint8_t *data, size_t size)
{
    static const int64_t shape[] = {2};
    static float values[] = {1, 2};
    const struct tensor_out outs[] = {
        {"a",          1, shape, 2, values},
        {"b.module.c", 1, shape, 2, values}
    };
    const struct tensor_source source = {outs, 2, tensor_fetch_host, NULL};
    struct weights *weights = NULL;
    struct err err = {0};
    if (access(fuzz_path("one.safetensors"), F_OK) != 0 &&
        safetensors_write(fuzz_path("one.safetensors"), &source, NULL, &err) != OK)
        fuzz_wrong(err.msg);
    fuzz_put("model.safetensors.index.json", data, size);
    if (fuzz_judge(weights_open(fuzz_path("model.safetensors.index.json"), &weights, &err), &err)) {
        struct weights_tensor tensor;
        if (weights_find(weights, "b.c", &tensor) && tensor.info.num_elems != 2)
            fuzz_wrong("a tensor has another size than was written");
        weights_close(weights);
    }
    unlink(fuzz_path("model.safetensors.index.json"));
    unlink(fuzz_path("one.safetensors"));
}

/* config.json with the names of classes. */
void fuzz_classes(const uint8_t *data, size_t size)
{
    char *names[] = {"bad", "fair", "good"};
    const struct class_names classes = {names, 3};
    struct err err = {0};
    char note[64];
    int *order = NULL;
    fuzz_put("config.json", data, size);
    if (fuzz_judge(hf_class_order(fuzz_path(""), &classes, &order, note, sizeof note, &err), &err))
        for (int c = 0; order && c < 3; c++)
            if (order[c] < 0 || order[c] > 2 || order[c] == order[(c + 1) % 3])
                fuzz_wrong("two classes have one output");
    free(order);
    unlink(fuzz_path("config.json"));
}

/* A run of another program, into a new store. */
void fuzz_run_file(const uint8_t *data, size_t size)
{
    struct json *root = NULL;
    struct store *store = NULL;
    struct err err = {0}, second = {0};
    int64_t run_id = -1, num_steps = -1;
    char *text = fuzz_text(data, size);
    if (json_parse(text, "run.json", &root, NULL) == OK) {
        if (store_open(fuzz_path("runs.db"), STORE_RECORD, &store, &err) != OK)
            fuzz_wrong(err.msg);
        if (fuzz_judge(run_file_import(root, "run.json", store, &run_id, &num_steps, &second),
                       &second) &&
            (run_id < 1 || num_steps < 1))
            fuzz_wrong("a run without a number or a step");
        store_close(store);
        unlink(fuzz_path("runs.db"));
        unlink(fuzz_path("runs.db-wal"));
        unlink(fuzz_path("runs.db-shm"));
    }
    json_free(root);
    free(text);
}
