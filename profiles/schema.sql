-- The store of Elapse: profiles, and records of simulated and real runs.
--
-- Sections "-- version N" are applied in order, each once, in one transaction; PRAGMA user_version
-- says how far a file has come. To change the schema append a section; never edit an old one.
-- Units end the names: _ns nanoseconds, _bytes bytes. The meaning of the columns stands in
-- profiles/store/profile.h and profiles/store/record.h.

-- version 1
CREATE TABLE profile (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    source TEXT NOT NULL CHECK (source IN ('measured', 'published')),
    note TEXT NOT NULL DEFAULT '',
    -- the device
    device_kind TEXT NOT NULL CHECK (device_kind <> ''),
    device_name TEXT NOT NULL DEFAULT '',
    mem_bytes INTEGER NOT NULL DEFAULT 0 CHECK (mem_bytes >= 0),
    cores INTEGER NOT NULL DEFAULT 0 CHECK (cores >= 0), -- of a GPU: SMs
    clock_mhz INTEGER NOT NULL DEFAULT 0 CHECK (clock_mhz >= 0),
    driver TEXT NOT NULL DEFAULT '',
    libraries TEXT NOT NULL DEFAULT '',
    -- the environment
    host TEXT NOT NULL DEFAULT '',
    measured_at TEXT NOT NULL DEFAULT '',
    version TEXT NOT NULL DEFAULT '',
    load REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX profile_by_kind ON profile (device_kind);

CREATE TABLE layer_cost (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    backend TEXT NOT NULL, dtype TEXT NOT NULL, threads INTEGER NOT NULL, ranks INTEGER NOT NULL,
    item TEXT NOT NULL, variant TEXT NOT NULL,
    hidden INTEGER NOT NULL, heads INTEGER NOT NULL, mlp INTEGER NOT NULL, seq INTEGER NOT NULL,
    patch INTEGER NOT NULL, image INTEGER NOT NULL, vocab INTEGER NOT NULL, classes INTEGER NOT NULL,
    pass TEXT NOT NULL CHECK (pass IN ('fwd', 'bwd_input', 'bwd_weight', 'update')),
    samples INTEGER NOT NULL CHECK (samples >= 0),
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, backend, dtype, threads, ranks, item, variant, hidden, heads, mlp, seq,
                 patch, image, vocab, classes, pass, samples)
) STRICT, WITHOUT ROWID;

CREATE TABLE link_cost (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    backend TEXT NOT NULL, place TEXT NOT NULL, ranks INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, backend, place, ranks, bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE collective_cost (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    op TEXT NOT NULL, backend TEXT NOT NULL, place TEXT NOT NULL, ranks INTEGER NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, op, backend, place, ranks, bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE host_cost (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    what TEXT NOT NULL, backend TEXT NOT NULL, threads INTEGER NOT NULL, ranks INTEGER NOT NULL,
    samples INTEGER NOT NULL, bytes INTEGER NOT NULL,
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, what, backend, threads, ranks, samples, bytes)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_use (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    what TEXT NOT NULL,
    predicted_bytes INTEGER NOT NULL CHECK (predicted_bytes >= 0),
    measured_bytes INTEGER NOT NULL CHECK (measured_bytes >= 0),
    PRIMARY KEY (profile_id, what)
) STRICT, WITHOUT ROWID;

-- version 2
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('simulated', 'real')),
    name TEXT NOT NULL,
    started_at TEXT NOT NULL, host TEXT NOT NULL, version TEXT NOT NULL,
    cost_source TEXT NOT NULL,
    num_devices INTEGER NOT NULL,
    finished INTEGER NOT NULL DEFAULT 0 CHECK (finished IN (0, 1)),
    total_ns INTEGER NOT NULL DEFAULT 0,
    job_json TEXT
) STRICT;

CREATE TABLE epoch (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    frozen_layers INTEGER NOT NULL, pipeline_length INTEGER NOT NULL, replicas INTEGER NOT NULL,
    microbatches INTEGER NOT NULL, steps INTEGER NOT NULL,
    step_ns INTEGER NOT NULL, transition_ns INTEGER NOT NULL,
    samples_per_s REAL, bubble_fraction REAL, cached INTEGER NOT NULL,
    train_loss REAL, eval_loss REAL, eval_accuracy REAL,
    PRIMARY KEY (run_id, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE step (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    step INTEGER NOT NULL, epoch INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, step_ns INTEGER NOT NULL,
    loss REAL, lr REAL, grad_norm REAL, samples_per_s REAL,
    frozen_layers INTEGER NOT NULL, pipeline_length INTEGER NOT NULL, replicas INTEGER NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE op (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    step INTEGER NOT NULL, replica INTEGER NOT NULL, rank INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL CHECK (end_ns >= start_ns),
    kind TEXT NOT NULL, stage INTEGER NOT NULL, microbatch INTEGER NOT NULL, arg INTEGER NOT NULL,
    PRIMARY KEY (run_id, step, replica, rank, kind, stage, microbatch, arg)
) STRICT, WITHOUT ROWID;

CREATE TABLE transition (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL, part TEXT NOT NULL,
    ns INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, epoch, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory (
    run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL, device INTEGER NOT NULL, what TEXT NOT NULL,
    predicted_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
    PRIMARY KEY (run_id, epoch, device, what)
) STRICT, WITHOUT ROWID;

-- version 3
-- The pass bwd_rest: backward of an item if no item below needs the gradient of its input.
CREATE TABLE layer_cost_3 (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    backend TEXT NOT NULL, dtype TEXT NOT NULL, threads INTEGER NOT NULL, ranks INTEGER NOT NULL,
    item TEXT NOT NULL, variant TEXT NOT NULL,
    hidden INTEGER NOT NULL, heads INTEGER NOT NULL, mlp INTEGER NOT NULL, seq INTEGER NOT NULL,
    patch INTEGER NOT NULL, image INTEGER NOT NULL, vocab INTEGER NOT NULL, classes INTEGER NOT NULL,
    pass TEXT NOT NULL CHECK (pass IN ('fwd', 'bwd_input', 'bwd_weight', 'bwd_rest', 'update')),
    samples INTEGER NOT NULL CHECK (samples >= 0),
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, backend, dtype, threads, ranks, item, variant, hidden, heads, mlp, seq,
                 patch, image, vocab, classes, pass, samples)
) STRICT, WITHOUT ROWID;
INSERT INTO layer_cost_3 SELECT * FROM layer_cost;
DROP TABLE layer_cost;
ALTER TABLE layer_cost_3 RENAME TO layer_cost;

-- version 4
-- The algorithms that a device's libraries were measured fastest with (profiles/store/choice.h).
CREATE TABLE library_choice (
    device_name TEXT NOT NULL, libraries TEXT NOT NULL,
    problem TEXT NOT NULL, answer TEXT NOT NULL,
    PRIMARY KEY (device_name, libraries, problem)
) STRICT, WITHOUT ROWID;

-- version 5
-- The CPU kernel for bf16 matrix products.
ALTER TABLE profile ADD COLUMN bf16_kernel TEXT NOT NULL DEFAULT '';

-- version 6
-- The CPU kernel for fp32 matrix products. It is the last of profile_info_table.
ALTER TABLE profile ADD COLUMN fp32_kernel TEXT NOT NULL DEFAULT '';

-- version 7
-- The pass fwd_nograd: forward of an item that keeps no stash.
CREATE TABLE layer_cost_7 (
    profile_id INTEGER NOT NULL REFERENCES profile (id) ON DELETE CASCADE,
    backend TEXT NOT NULL, dtype TEXT NOT NULL, threads INTEGER NOT NULL, ranks INTEGER NOT NULL,
    item TEXT NOT NULL, variant TEXT NOT NULL,
    hidden INTEGER NOT NULL, heads INTEGER NOT NULL, mlp INTEGER NOT NULL, seq INTEGER NOT NULL,
    patch INTEGER NOT NULL, image INTEGER NOT NULL, vocab INTEGER NOT NULL, classes INTEGER NOT NULL,
    pass TEXT NOT NULL CHECK (pass IN ('fwd', 'bwd_input', 'bwd_weight', 'bwd_rest', 'fwd_nograd',
                                       'update')),
    samples INTEGER NOT NULL CHECK (samples >= 0),
    median_ns REAL NOT NULL CHECK (median_ns >= 0),
    p10_ns REAL NOT NULL CHECK (p10_ns >= 0 AND p10_ns <= median_ns),
    p90_ns REAL NOT NULL CHECK (p90_ns >= median_ns),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (profile_id, backend, dtype, threads, ranks, item, variant, hidden, heads, mlp, seq,
                 patch, image, vocab, classes, pass, samples)
) STRICT, WITHOUT ROWID;
INSERT INTO layer_cost_7 SELECT * FROM layer_cost;
DROP TABLE layer_cost;
ALTER TABLE layer_cost_7 RENAME TO layer_cost;

-- version 8
-- Factors between computed and measured times, fitted to measured steps (partition/cost/calibration.h).
CREATE TABLE calibration (
    name TEXT PRIMARY KEY CHECK (name <> ''),
    made_at TEXT NOT NULL, version TEXT NOT NULL,
    cluster TEXT NOT NULL, framework TEXT NOT NULL,
    num_rows INTEGER NOT NULL CHECK (num_rows >= 0),
    num_peaks INTEGER NOT NULL CHECK (num_peaks >= 0),
    noise REAL NOT NULL CHECK (noise >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE calibration_factor (
    calibration TEXT NOT NULL REFERENCES calibration (name) ON DELETE CASCADE,
    factor TEXT NOT NULL,
    value REAL NOT NULL CHECK (value > 0),
    determined INTEGER NOT NULL CHECK (determined IN (0, 1)),
    PRIMARY KEY (calibration, factor)
) STRICT, WITHOUT ROWID;

CREATE TABLE calibration_covariance ( -- of the logarithms of two factors
    calibration TEXT NOT NULL REFERENCES calibration (name) ON DELETE CASCADE,
    factor TEXT NOT NULL, other TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (calibration, factor, other)
) STRICT, WITHOUT ROWID;

-- version 9
-- What the rows of a calibration were measured on, since its factors are good for nothing else.
ALTER TABLE calibration ADD COLUMN device TEXT NOT NULL DEFAULT '';
ALTER TABLE calibration ADD COLUMN dtype TEXT NOT NULL DEFAULT '';
ALTER TABLE calibration ADD COLUMN launcher TEXT NOT NULL DEFAULT '';
