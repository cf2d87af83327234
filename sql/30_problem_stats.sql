-- problem_stats: difficulty and discrimination of each problem across models.
-- Grain: one row per benchmark, subject, protocol and problem_id; graded pass/fail attempts only.
-- difficulty is 1 minus the mean success rate over models. discrimination is the corrected item-total correlation:
-- over models, between success on this problem and mean success on all other problems of the benchmark under the same
-- protocol. suspicious: weak models solve it and strong ones do not, beyond chance (the correlation is below 0 by 1.645
-- standard errors, 1 / sqrt(models - 3)); null below 8 models.
-- discrimination needs three models and is mostly noise with few. Inspect suspicious problems before excluding them.
CREATE OR REPLACE VIEW problem_stats AS
WITH rates AS (
    SELECT benchmark, subject, protocol, problem_id, model, n, c, c / n::DOUBLE AS rate
    FROM problem_counts
    WHERE n > 0 AND c IS NOT NULL
),
others AS (
    SELECT
        *,
        -- rounded: sums of equal rates may differ in the last digit, which is no difference between models
        round((sum(rate) OVER model_rows - rate) / nullif(count(*) OVER model_rows - 1, 0), 12) AS rest
    FROM rates
    WINDOW model_rows AS (PARTITION BY benchmark, protocol, model)
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
