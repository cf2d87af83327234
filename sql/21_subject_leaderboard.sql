-- subject_leaderboard: models ranked within each subject of a benchmark, protocol and metric.
-- Grain: one row per benchmark, subject, metric, protocol and model. Otherwise as leaderboard.
CREATE OR REPLACE VIEW subject_leaderboard AS
SELECT
    summary.benchmark,
    summary.subject,
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
FROM subject_summary AS summary
JOIN internal.subject_rank AS ranks
    ON ranks.benchmark = summary.benchmark AND ranks.subject = summary.subject AND ranks.metric = summary.metric
    AND ranks.protocol = summary.protocol AND ranks.model = summary.model;
