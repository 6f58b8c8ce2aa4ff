-- The cluster of the PipeTransformer paper: constants that fit its published measurements.
--
-- Source: the ten epochs of ViT-B/16 on CIFAR-10 at 224 pixels on 2 x 8 Quadro RTX 5000, fitted per
-- layer and image within 8 %: forward of a frozen layer 0.535 ms, training (forward and backward)
-- 1.026 ms. Split here: attention 36 % and MLP 64 % (their FLOPs at 197 tokens), backward = 1.026 -
-- 0.535 ms, half for the input and half for the weights; embedding, norm and head cost nothing. The
-- fit knows whole layers only: the first one that trains costs as much as any other (bwd_rest).
-- Times are linear in the samples of a micro-batch: two points a curve. The input pipeline takes
-- 0.94 ms an image and pipeline besides (host_cost 'input', for a batch of 320).
INSERT INTO profile (name, source, note, device_kind, device_name, mem_bytes, libraries, host, measured_at)
VALUES ('rtx5000-paper', 'published',
 'constants fitted to the measurements of PipeTransformer (ICML 2021, arXiv 2102.03161) of ViT-B/16',
 'rtx5000', 'NVIDIA Quadro RTX 5000', 17179869184, 'PyTorch, NCCL', 'paper', '2021');
INSERT INTO host_cost (profile_id, what, backend, threads, ranks, samples, bytes, median_ns, p10_ns, p90_ns, count)
SELECT id, v.* FROM profile, (VALUES
 ('input', 'cuda', 0, 1, 320, 0, 300800000.0, 300800000.0, 300800000.0, 1)) AS v
WHERE name = 'rtx5000-paper';
INSERT INTO layer_cost (profile_id, backend, dtype, threads, ranks, item, variant, hidden, heads, mlp,
 seq, patch, image, vocab, classes, pass, samples, median_ns, p10_ns, p90_ns, count)
SELECT id, v.* FROM profile, (VALUES
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_input', 1, 88380.0, 88380.0, 88380.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_input', 400, 35352000.0, 35352000.0, 35352000.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_weight', 1, 88380.0, 88380.0, 88380.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_weight', 400, 35352000.0, 35352000.0, 35352000.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_rest', 1, 88380.0, 88380.0, 88380.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'bwd_rest', 400, 35352000.0, 35352000.0, 35352000.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'fwd', 1, 192600.0, 192600.0, 192600.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'fwd', 400, 77040000.0, 77040000.0, 77040000.0, 1),
 ('cuda', 'fp32', 0, 1, 'attention', 'full', 768, 12, 0, 197, 0, 0, 0, 0, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_input', 1, 157120.0, 157120.0, 157120.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_input', 400, 62848000.0, 62848000.0, 62848000.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_weight', 1, 157120.0, 157120.0, 157120.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_weight', 400, 62848000.0, 62848000.0, 62848000.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_rest', 1, 157120.0, 157120.0, 157120.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'bwd_rest', 400, 62848000.0, 62848000.0, 62848000.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'fwd', 1, 342400.0, 342400.0, 342400.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'fwd', 400, 136960000.0, 136960000.0, 136960000.0, 1),
 ('cuda', 'fp32', 0, 1, 'mlp', 'erf', 768, 0, 3072, 197, 0, 0, 0, 0, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'bwd_input', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'bwd_input', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'bwd_weight', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'bwd_weight', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'fwd', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'fwd', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'embedding', 'patch', 768, 0, 0, 197, 16, 224, 0, 0, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_input', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_input', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_weight', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_weight', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_rest', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'bwd_rest', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'fwd', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'fwd', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'norm', '', 768, 0, 0, 197, 0, 0, 0, 0, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_input', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_input', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_weight', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_weight', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_rest', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'bwd_rest', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'fwd', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'fwd', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 10, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_input', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_input', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_weight', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_weight', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_rest', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'bwd_rest', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'fwd', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'fwd', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 100, 'update', 0, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_input', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_input', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_weight', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_weight', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_rest', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'bwd_rest', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'fwd', 1, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'fwd', 400, 0.0, 0.0, 0.0, 1),
 ('cuda', 'fp32', 0, 1, 'head', 'classify', 768, 0, 0, 0, 0, 0, 0, 1000, 'update', 0, 0.0, 0.0, 0.0, 1)) AS v
WHERE name = 'rtx5000-paper';
