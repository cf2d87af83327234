-- pair: every two models in both orders, so that "everything against my model" is one WHERE.
-- Grain: one row per benchmark, metric, protocol, model_a and model_b.
-- The same evidence as comparison. Seen from the other side, lift and interval change their sign, wins their places,
-- and claim is what the numbers allow to say of the other model.
CREATE OR REPLACE VIEW pair AS
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
FROM internal.model_pair
UNION ALL
SELECT
    benchmark,
    metric,
    model_b AS model_a,
    model_a AS model_b,
    protocol,
    problems,
    0 - lift AS lift,
    0 - hi AS lo,
    0 - lo AS hi,
    wins_b AS wins_a,
    wins_a AS wins_b,
    ties,
    p_one_sided_a AS p_one_sided,
    p_two_sided,
    p_holm,
    q,
    claim_a AS claim
FROM internal.model_pair;
COMMENT ON VIEW pair IS 'Paired comparisons of every two models, in both orders.';
COMMENT ON COLUMN pair.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN pair.metric IS 'canonical name, such as pass@8';
COMMENT ON COLUMN pair.model_a IS 'the first model';
COMMENT ON COLUMN pair.model_b IS 'the second model';
COMMENT ON COLUMN pair.protocol IS 'the protocol both ran under; null when they share none';
COMMENT ON COLUMN pair.problems IS 'problems scored for both models; null when they share no protocol';
COMMENT ON COLUMN pair.lift IS 'mean of the score of B minus that of A over those problems; null when not comparable';
COMMENT ON COLUMN pair.lo IS 'lower end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN pair.hi IS 'upper end of the interval of the lift: paired bootstrap over whole problems';
COMMENT ON COLUMN pair.wins_a IS 'problems where A scored higher';
COMMENT ON COLUMN pair.wins_b IS 'problems where B scored higher';
COMMENT ON COLUMN pair.ties IS 'problems with equal scores';
COMMENT ON COLUMN pair.p_one_sided IS 'sign-flip test: chance of a lift as large for B, were the two equal';
COMMENT ON COLUMN pair.p_two_sided IS 'sign-flip test: chance of a lift as far from zero, were the two equal';
COMMENT ON COLUMN pair.p_holm IS 'p_two_sided adjusted over all pairs of the benchmark, protocol and metric (Holm)';
COMMENT ON COLUMN pair.q IS 'the same by Benjamini and Hochberg: the share of false ones among claims up to this one';
COMMENT ON COLUMN pair.claim IS 'improvement, regression, equivalent, not worse or inconclusive (of B over A); or not comparable, and what differs';
