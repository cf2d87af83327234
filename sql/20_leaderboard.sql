-- leaderboard: models ranked within a benchmark, protocol and metric.
-- Grain: one row per benchmark, metric, protocol and model.
-- A model is ranked if it attempted enough of the benchmark ([compare] min_share), whatever its n is; otherwise reason
-- says why not. rank_lo is one more than the number of models claimed better in pair, rank_hi leaves room for those
-- claimed worse; p_best is the share of bootstrap resamples in which the model ranks first.
-- Rank ranges need a compared metric ([compare] metrics) and [compare] min_problems common problems. Models under
-- different protocols are never ranked against each other.
CREATE OR REPLACE VIEW leaderboard AS
SELECT
    benchmark, metric, rank, rank_lo, rank_hi, rank_lo = 1 AS could_be_best, p_best, model, protocol, value, lo, hi,
    problems, problems_scored, problems_of_benchmark, attempts, reason
FROM model_summary JOIN source.model_rank USING (benchmark, metric, protocol, model);

-- subject_leaderboard: the same within each subject.
-- Grain: one row per benchmark, subject, metric, protocol and model.
CREATE OR REPLACE VIEW subject_leaderboard AS
SELECT
    benchmark, subject, metric, rank, rank_lo, rank_hi, rank_lo = 1 AS could_be_best, p_best, model, protocol, value,
    lo, hi, problems, problems_scored, problems_of_benchmark, attempts, reason
FROM subject_summary JOIN source.subject_rank USING (benchmark, subject, metric, protocol, model);
