-- subject_comparison: two models on the problems of one subject that both attempted under one protocol.
-- Grain: one row per benchmark, subject, metric, protocol and two models, the first in the order of names as model_a.
-- As comparison; the family of q and p_holm is all pairs of all subjects of the benchmark, protocol and metric.
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
    claim
FROM internal.subject_pair;
COMMENT ON VIEW subject_comparison IS 'Paired comparisons of two models within each subject, one order of each two.';
COMMENT ON COLUMN subject_comparison.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN subject_comparison.subject IS 'slice inside a benchmark';
COMMENT ON COLUMN subject_comparison.metric IS 'canonical name, such as pass@8';
COMMENT ON COLUMN subject_comparison.model_a IS 'the first model';
COMMENT ON COLUMN subject_comparison.model_b IS 'the second model';
COMMENT ON COLUMN subject_comparison.protocol IS 'the protocol both ran under; null when they share none';
COMMENT ON COLUMN subject_comparison.problems IS 'problems scored for both models; null when they share no protocol';
COMMENT ON COLUMN subject_comparison.lift IS 'mean of the score of B minus that of A over those problems; null when not comparable';
COMMENT ON COLUMN subject_comparison.lo IS 'lower end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN subject_comparison.hi IS 'upper end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN subject_comparison.wins_a IS 'problems where A scored higher';
COMMENT ON COLUMN subject_comparison.wins_b IS 'problems where B scored higher';
COMMENT ON COLUMN subject_comparison.ties IS 'problems with equal scores';
COMMENT ON COLUMN subject_comparison.p_one_sided IS 'sign-flip test: chance of a lift as large for B, were the two equal';
COMMENT ON COLUMN subject_comparison.p_two_sided IS 'sign-flip test: chance of a lift as far from zero, were the two equal';
COMMENT ON COLUMN subject_comparison.p_holm IS 'p_two_sided adjusted over all pairs of the benchmark, protocol and metric (Holm)';
COMMENT ON COLUMN subject_comparison.q IS 'the same by Benjamini and Hochberg: the share of false ones among claims up to this one';
COMMENT ON COLUMN subject_comparison.claim IS 'improvement, regression, equivalent, not worse or inconclusive (of B over A); or not comparable, and what differs';
