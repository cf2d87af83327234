-- comparison: paired comparison of two models on the problems both attempted under one protocol.
-- Grain: one row per benchmark, metric, protocol and pair of models; model_a sorts before model_b.
-- lift is B minus A. A claim requires a confidence interval that excludes zero, q <= 1 - confidence (adjusted over all
-- pairs of the benchmark, protocol and metric), and of ranked models ranges of ranks that agree. Incomparable pairs have no numbers; claim gives the reason.
-- The view pair has both orders.
CREATE OR REPLACE VIEW comparison AS
SELECT
    benchmark,
    metric,
    model_a,
    model_b,
    protocol,
    problems,
    lift,
    lo,
    hi,
    wins_a,
    wins_b,
    ties,
    p_one_sided,
    p_two_sided,
    p_holm,
    q,
    claim,
    resamples
FROM internal.model_pair;
