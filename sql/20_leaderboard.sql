-- leaderboard: models ranked within a benchmark, protocol and metric.
-- Grain: one row per benchmark, metric, protocol and model.
-- Ranked are the models that attempted enough of the benchmark ([compare] min_share) and whose n may be compared;
-- the others have no rank, and a reason instead. rank orders the values. rank_lo to rank_hi is what the problems
-- leave open, from the same sign flips as the comparisons; p_best is the share of resamples in which the model leads.
-- Caveat: ranges are there for the metrics that are compared ([compare] metrics), where the ranked models have
-- [compare] min_problems in common. Different protocols are never ranked against each other.
CREATE OR REPLACE VIEW leaderboard AS
SELECT
    me.benchmark,
    me.metric,
    place.rank,
    place.rank_lo,
    place.rank_hi,
    place.rank_lo = 1 AS could_be_best,
    place.p_best,
    me.model,
    me.protocol,
    me.value,
    me.lo,
    me.hi,
    me.problems,
    me.problems_scored,
    me.problems_of_benchmark,
    me.attempts,
    place.reason
FROM model_summary AS me
JOIN internal.model_rank AS place
    ON place.benchmark = me.benchmark AND place.metric = me.metric
    AND place.protocol = me.protocol AND place.model = me.model;
COMMENT ON VIEW leaderboard IS 'Models ranked by value; rank_lo to rank_hi is the range that the problems leave open; unranked models have a reason.';
COMMENT ON COLUMN leaderboard.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN leaderboard.metric IS 'canonical name, such as pass@8';
COMMENT ON COLUMN leaderboard.rank IS 'place by value among the ranked models; null for the others';
COMMENT ON COLUMN leaderboard.rank_lo IS 'best rank that the problems leave open';
COMMENT ON COLUMN leaderboard.rank_hi IS 'worst rank that the problems leave open';
COMMENT ON COLUMN leaderboard.could_be_best IS 'no other model is significantly better';
COMMENT ON COLUMN leaderboard.p_best IS 'share of resamples in which the model leads; a tie for the lead is split';
COMMENT ON COLUMN leaderboard.model IS 'the model as the lake names it';
COMMENT ON COLUMN leaderboard.protocol IS 'the protocol columns as JSON; empty when none are configured';
COMMENT ON COLUMN leaderboard.value IS 'finite-bank estimate: unbiased, from the attempts made';
COMMENT ON COLUMN leaderboard.lo IS 'lower end of the interval of value: what the model would score on other problems like these';
COMMENT ON COLUMN leaderboard.hi IS 'upper end of the interval of value: what the model would score on other problems like these';
COMMENT ON COLUMN leaderboard.problems IS 'problems of the model';
COMMENT ON COLUMN leaderboard.problems_scored IS 'those with at least k graded attempts, which value is the mean of';
COMMENT ON COLUMN leaderboard.problems_of_benchmark IS 'problems that any model attempted under the protocol';
COMMENT ON COLUMN leaderboard.attempts IS 'graded attempts of the model';
COMMENT ON COLUMN leaderboard.reason IS 'why the model is not ranked; null for ranked ones';
