-- budget: sources of the uncertainty of pass@1, and the effect of more attempts or problems.
-- Grain: one row per benchmark, model and protocol.
-- The squared standard error (problems as a random sample) has two parts: var_attempts, due to the finite number
-- of attempts, estimated without bias from problems with two or more; and var_problems, the variation between problems.
-- One more attempt per problem reduces only the first (se_one_more_attempt, with the limit se_endless_attempts); one
-- more problem reduces both (se_one_more_problem).
-- Problems are treated as independent, clustered or not. Null if no problem has two attempts.
CREATE OR REPLACE VIEW budget AS
WITH pairs AS (
    SELECT
        benchmark, model, protocol, n::DOUBLE AS n, c::DOUBLE AS c, sum(problems)::DOUBLE AS problems,
        CASE WHEN n > 1 THEN c * (n - c) / (n::DOUBLE * (n - 1)) END AS noise  -- unbiased for p (1 - p)
    FROM problem_histogram
    WHERE n > 0 AND c IS NOT NULL
    GROUP BY ALL
),
with_noise AS (
    SELECT
        *,
        sum(noise * problems) OVER model_rows / sum(problems) FILTER (noise IS NOT NULL) OVER model_rows AS usual_noise,
        sum(problems * c / n) OVER model_rows / sum(problems) OVER model_rows AS value
    FROM pairs
    WINDOW model_rows AS (PARTITION BY benchmark, model, protocol)
),
parts AS (
    SELECT
        benchmark,
        model,
        protocol,
        any_value(value) AS value,
        sum(problems) AS m,
        sum(problems * n) / sum(problems) AS attempts_per_problem,
        sum(problems * (c / n - value) ** 2) / nullif(sum(problems) - 1, 0) / sum(problems) AS variance,
        sum(problems * coalesce(noise, usual_noise) / n) / sum(problems) ** 2 AS from_attempts,
        sum(problems * coalesce(noise, usual_noise) / (n * (n + 1))) / sum(problems) ** 2 AS saved_by_attempt
    FROM with_noise
    GROUP BY benchmark, model, protocol
)
SELECT
    benchmark,
    model,
    protocol,
    value,
    m::BIGINT AS problems,
    attempts_per_problem,
    sqrt(variance) AS se,
    variance - problem_part AS var_attempts,
    problem_part AS var_problems,
    1 - problem_part / nullif(variance, 0) AS share_attempts,
    sqrt(problem_part + (variance - problem_part) * coalesce(1 - saved_by_attempt / nullif(from_attempts, 0), 1))
        AS se_one_more_attempt,
    sqrt(problem_part) AS se_endless_attempts,
    sqrt(variance * m / (m + 1)) AS se_one_more_problem
FROM (
    SELECT *, CASE WHEN variance > from_attempts THEN variance - from_attempts
        WHEN variance <= from_attempts THEN 0 END AS problem_part
    FROM parts
);
