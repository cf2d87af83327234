-- comparison: paired comparison of two models on the problems both attempted under one protocol.
-- Grain: one row per benchmark, metric, protocol and pair of models; model_a sorts before model_b.
-- lift is B minus A. A claim requires a confidence interval that excludes zero, q <= 1 - confidence (adjusted over all
-- pairs of the benchmark, protocol and metric), and of ranked models ranges of ranks that agree. Incomparable pairs have
-- no numbers; claim gives the reason.
-- With [measures], rows of pass@1 have lift_MEASURE (what B costs more), and lift_per_MEASURE (lift divided by that).
-- The view pair has both orders.
CREATE OR REPLACE VIEW comparison AS
SELECT * EXCLUDE (p_one_sided_a, claim_a)
FROM source.model_pair
LEFT JOIN source.pair_measure USING (benchmark, protocol, metric, model_a, model_b);

-- subject_comparison: the same on the problems of one subject.
-- Grain: one row per benchmark, subject, metric, protocol and pair of models; model_a sorts before model_b.
-- q and p_holm are adjusted over all pairs of all subjects of the benchmark, protocol and metric.
CREATE OR REPLACE VIEW subject_comparison AS
SELECT * EXCLUDE (p_one_sided_a, claim_a) FROM source.subject_pair;
