-- leaderboard: models ranked within a benchmark, protocol and metric.
-- Grain: one row per benchmark, metric, protocol and model.
-- Caveat: rank orders the values. rank_lo to rank_hi is what resampling the problems leaves open, and p_best
-- the share of resamples in which the model leads; both null for metrics not named in [compare] metrics.
-- Every model counts with the mean of its own problems, as in its value; to tell two models apart on the
-- problems they share, see comparison.
-- lo and hi are the interval of value: what the model would score on other problems like these. Different
-- protocols are never ranked against each other.
CREATE OR REPLACE VIEW leaderboard AS
SELECT
    me.benchmark,
    me.metric,
    CASE WHEN me.value IS NOT NULL THEN
        rank() OVER (PARTITION BY me.benchmark, me.metric, me.protocol ORDER BY me.value DESC NULLS LAST)
    END AS rank,
    CASE WHEN me.value IS NOT NULL THEN settled.rank_lo END AS rank_lo,
    CASE WHEN me.value IS NOT NULL THEN settled.rank_hi END AS rank_hi,
    CASE WHEN me.value IS NOT NULL THEN settled.p_best END AS p_best,
    me.model,
    me.protocol,
    me.value,
    me.lo,
    me.hi,
    me.problems
FROM model_summary AS me
LEFT JOIN model_rank AS settled
    ON settled.benchmark = me.benchmark AND settled.metric = me.metric
    AND settled.protocol = me.protocol AND settled.model = me.model;
COMMENT ON VIEW leaderboard IS 'Models ranked by value; rank_lo to rank_hi is the range that resampling the problems leaves open.';
