-- problem_stats: what all models together say about each problem.
-- Grain: one row per benchmark, subject, protocol and problem_id; graded pass/fail attempts only.
-- difficulty is 1 minus the mean success rate over models. discrimination is the corrected item-total
-- correlation: over models, between success on this problem and mean success on all other problems of the
-- benchmark under the same protocol.
-- suspicious: weak models solve it and strong ones do not, by more than chance makes likely (the correlation is
-- below 0 by 1.645 of its standard errors, 1 / sqrt(models - 3)); null below 8 models, which tell nothing.
-- Caveat: discrimination needs three models, and with few of them it is mostly noise. What is suspicious is a
-- reason to read the problem, not a verdict.
CREATE OR REPLACE VIEW problem_stats AS
WITH rates AS (
    SELECT benchmark, subject, protocol, problem_id, model, n, c, c / n::DOUBLE AS rate
    FROM problem
    WHERE n > 0 AND c IS NOT NULL
),
others AS (
    SELECT
        *,
        -- rounded: models that did equally well elsewhere must not be told apart by the last digits of sums
        round((sum(rate) OVER whole - rate) / nullif(count(*) OVER whole - 1, 0), 12) AS rest
    FROM rates
    WINDOW whole AS (PARTITION BY benchmark, protocol, model)
),
stats AS (
    SELECT
        benchmark,
        subject,
        protocol,
        problem_id,
        count(*) AS models,
        sum(n)::BIGINT AS attempts,
        count(*) FILTER (c > 0) AS solved_by,
        1 - avg(rate) AS difficulty,
        CASE WHEN count(rest) >= 3 AND max(rate) > min(rate) AND max(rest) > min(rest)
            THEN corr(rate, rest) END AS discrimination,
        bool_and(c = n) AS saturated,
        bool_and(c = 0) AS never_solved
    FROM others
    GROUP BY ALL
)
SELECT
    *,
    CASE WHEN models >= 8 THEN coalesce(discrimination + 1.645 / sqrt(models - 3) < 0, FALSE) END AS suspicious
FROM stats;
COMMENT ON VIEW problem_stats IS 'Difficulty and discrimination of every problem over models; saturated, never solved and suspicious ones flagged.';
COMMENT ON COLUMN problem_stats.models IS 'models with a graded attempt of the problem';
COMMENT ON COLUMN problem_stats.attempts IS 'graded attempts of all models';
COMMENT ON COLUMN problem_stats.solved_by IS 'models that solved it at least once';
COMMENT ON COLUMN problem_stats.difficulty IS '1 minus the mean success rate over models';
COMMENT ON COLUMN problem_stats.discrimination IS 'correlation over models of success here and on all other problems; null below 3 models';
COMMENT ON COLUMN problem_stats.saturated IS 'every attempt of every model passed';
COMMENT ON COLUMN problem_stats.never_solved IS 'no attempt of any model passed';
COMMENT ON COLUMN problem_stats.suspicious IS 'discrimination is below 0 by more than chance makes likely; null below 8 models';
