-- budget: where the uncertainty of pass@1 comes from, and what more of either would buy.
-- Grain: one row per benchmark, model and protocol.
-- The squared standard error (problems a sample) is the sum of two parts: var_attempts, the noise of a finite
-- number of attempts, estimated without bias from problems with two or more; and var_problems, the spread
-- between problems, which no number of attempts removes. One more attempt per problem shrinks the first only
-- (se_one_more_attempt; in the end se_endless_attempts), one more problem shrinks both (se_one_more_problem).
-- Caveat: problems count as independent here, clusters or not. Null where no problem has two attempts.
CREATE OR REPLACE VIEW budget AS
WITH pairs AS (
    SELECT
        benchmark, model, protocol, n::DOUBLE AS n, c::DOUBLE AS c, sum(problems)::DOUBLE AS problems,
        CASE WHEN n > 1 THEN c * (n - c) / (n::DOUBLE * (n - 1)) END AS noise  -- unbiased for p (1 - p)
    FROM problem_histogram
    WHERE n > 0 AND c IS NOT NULL
    GROUP BY ALL
),
known AS (
    SELECT
        *,
        sum(noise * problems) OVER each / sum(problems) FILTER (noise IS NOT NULL) OVER each AS usual_noise,
        sum(problems * c / n) OVER each / sum(problems) OVER each AS value
    FROM pairs
    WINDOW each AS (PARTITION BY benchmark, model, protocol)
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
    FROM known
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
COMMENT ON VIEW budget IS 'The variance of pass@1 split into attempts and problems, and the standard error after one more of either.';
COMMENT ON COLUMN budget.value IS 'pass@1';
COMMENT ON COLUMN budget.problems IS 'problems with a graded attempt';
COMMENT ON COLUMN budget.attempts_per_problem IS 'graded attempts per problem, on average';
COMMENT ON COLUMN budget.se IS 'standard error of value, problems a sample';
COMMENT ON COLUMN budget.var_attempts IS 'part of the squared standard error that a finite number of attempts makes';
COMMENT ON COLUMN budget.var_problems IS 'part of the squared standard error that the spread between problems makes';
COMMENT ON COLUMN budget.share_attempts IS 'var_attempts as a share of the squared standard error';
COMMENT ON COLUMN budget.se_one_more_attempt IS 'standard error with one more attempt of every problem';
COMMENT ON COLUMN budget.se_endless_attempts IS 'standard error with endless attempts of the same problems';
COMMENT ON COLUMN budget.se_one_more_problem IS 'standard error with one more problem';
