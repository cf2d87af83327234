-- comparison: two models on the problems that both attempted under one protocol.
-- Grain: one row per benchmark, metric, protocol and two models, the first in the order of names as model_a.
-- lift is B minus A. A claim needs an interval on one side of zero and a q of at most 1 - confidence: q counts all
-- pairs of the benchmark, protocol and metric, so that many pairs do not make claims by chance.
-- Caveat: two models that cannot be compared have no numbers; claim says what differs. Both orders: see pair.
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
    claim
FROM internal.model_pair;
COMMENT ON VIEW comparison IS 'Paired comparisons of two models on the problems both attempted, one order of each two.';
COMMENT ON COLUMN comparison.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN comparison.metric IS 'canonical name, such as pass@8';
COMMENT ON COLUMN comparison.model_a IS 'the first model';
COMMENT ON COLUMN comparison.model_b IS 'the second model';
COMMENT ON COLUMN comparison.protocol IS 'the protocol both ran under; null when they share none';
COMMENT ON COLUMN comparison.problems IS 'problems scored for both models; null when they share no protocol';
COMMENT ON COLUMN comparison.lift IS 'mean of the score of B minus that of A over those problems; null when not comparable';
COMMENT ON COLUMN comparison.lo IS 'lower end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN comparison.hi IS 'upper end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN comparison.wins_a IS 'problems where A scored higher';
COMMENT ON COLUMN comparison.wins_b IS 'problems where B scored higher';
COMMENT ON COLUMN comparison.ties IS 'problems with equal scores';
COMMENT ON COLUMN comparison.p_one_sided IS 'sign-flip test: chance of a lift as large for B, were the two equal';
COMMENT ON COLUMN comparison.p_two_sided IS 'sign-flip test: chance of a lift as far from zero, were the two equal';
COMMENT ON COLUMN comparison.p_holm IS 'p_two_sided adjusted over all pairs of the benchmark, protocol and metric (Holm)';
COMMENT ON COLUMN comparison.q IS 'the same by Benjamini and Hochberg: the share of false ones among claims up to this one';
COMMENT ON COLUMN comparison.claim IS 'improvement, regression, equivalent, not worse or inconclusive (of B over A); or not comparable, and what differs';
