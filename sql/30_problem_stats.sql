-- problem_stats: what all models together say about each problem.
-- Grain: one row per benchmark, subject, protocol and problem_id; graded pass/fail attempts only.
-- difficulty is 1 minus the mean success rate over models. discrimination is the corrected item-total
-- correlation: over models, between success on this problem and mean success on all other problems of the
-- benchmark under the same protocol.
-- Caveat: discrimination needs three models, and with few of them it is mostly noise; a negative one
-- (suspicious: weak models solve it, strong ones do not) is a reason to read the problem, not a verdict.
CREATE OR REPLACE VIEW problem_stats AS
WITH rates AS (
    SELECT benchmark, subject, protocol, problem_id, model, n, c, c / n::DOUBLE AS rate
    FROM problem
    WHERE n > 0 AND c IS NOT NULL
),
others AS (
    SELECT
        *,
        (sum(rate) OVER whole - rate) / nullif(count(*) OVER whole - 1, 0) AS rest
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
    coalesce(discrimination < 0, FALSE) AS suspicious
FROM stats;
COMMENT ON VIEW problem_stats IS 'Difficulty and discrimination of every problem over models; saturated, never solved and suspicious ones flagged.';
