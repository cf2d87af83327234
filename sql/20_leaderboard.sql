-- leaderboard: models ranked within a benchmark, protocol and metric.
-- Grain: one row per benchmark, metric, protocol and model.
-- Caveat: rank orders the values; rank_lo and rank_hi are the best and worst rank that the intervals leave
-- open (a model is surely ahead only where its interval lies wholly above). Different protocols are never
-- ranked against each other. p_best is null until paired resamples are part of a run.
CREATE OR REPLACE VIEW leaderboard AS
SELECT
    me.benchmark,
    me.metric,
    CASE WHEN me.value IS NOT NULL THEN
        rank() OVER (PARTITION BY me.benchmark, me.metric, me.protocol ORDER BY me.value DESC NULLS LAST)
    END AS rank,
    1 + (
        SELECT count(*) FROM model_summary AS other
        WHERE other.benchmark = me.benchmark AND other.metric = me.metric AND other.protocol = me.protocol
            AND other.lo > me.hi
    ) AS rank_lo,
    (
        SELECT count(*) FROM model_summary AS other
        WHERE other.benchmark = me.benchmark AND other.metric = me.metric AND other.protocol = me.protocol
            AND NOT coalesce(other.hi < me.lo, FALSE)
    ) AS rank_hi,
    NULL::DOUBLE AS p_best,
    me.model,
    me.protocol,
    me.value,
    me.lo,
    me.hi,
    me.problems
FROM model_summary AS me;
COMMENT ON VIEW leaderboard IS 'Models ranked by value; rank_lo to rank_hi is the range that the intervals leave open.';
