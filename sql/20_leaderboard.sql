-- leaderboard: models ranked within a benchmark, protocol and metric.
-- Grain: one row per benchmark, metric, protocol and model.
-- A model is ranked if it attempted enough of the benchmark ([compare] min_share), whatever its n is; otherwise reason
-- says why not. rank_lo is one more than the number of models claimed better in pair, rank_hi leaves room for those
-- claimed worse; p_best is the share of bootstrap resamples in which the model ranks first.
-- Rank ranges need a compared metric ([compare] metrics) and [compare] min_problems common problems. Models under
-- different protocols are never ranked against each other.
CREATE OR REPLACE VIEW leaderboard AS
SELECT
    summary.benchmark,
    summary.metric,
    ranks.rank,
    ranks.rank_lo,
    ranks.rank_hi,
    ranks.rank_lo = 1 AS could_be_best,
    ranks.p_best,
    summary.model,
    summary.protocol,
    summary.value,
    summary.lo,
    summary.hi,
    summary.problems,
    summary.problems_scored,
    summary.problems_of_benchmark,
    summary.attempts,
    ranks.reason
FROM model_summary AS summary
JOIN internal.model_rank AS ranks
    ON ranks.benchmark = summary.benchmark AND ranks.metric = summary.metric
    AND ranks.protocol = summary.protocol AND ranks.model = summary.model;
