-- subject_comparison: paired comparison of two models on the problems of one subject.
-- Grain: one row per benchmark, subject, metric, protocol and pair of models; model_a sorts before model_b.
-- As comparison; q and p_holm are adjusted over all pairs of all subjects of the benchmark, protocol and metric.
CREATE OR REPLACE VIEW subject_comparison AS
SELECT
    benchmark,
    subject,
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
FROM internal.subject_pair;
