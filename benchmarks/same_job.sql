-- The job of scorelake as a DuckDB script: remove duplicate attempts, count, store the counts, pass@k by model.
-- lake.py fills in {distinct_attempts} (SELECT DISTINCT of keys, verdict and attempt; the lake itself where attempts have
-- no ids), {keys} (of a problem, and the score or answer where there is one), {outcome}, {passed} and {ks}.
CREATE TABLE counts AS
SELECT {keys}, count({outcome}) AS n, count(*) FILTER ({passed}) AS c, count(*) - count({outcome}) AS ungraded
FROM {distinct_attempts}
GROUP BY {keys};
CREATE TABLE summary AS
SELECT benchmark, model, k, avg(
    CASE
        WHEN n < k THEN NULL
        WHEN n - c < k THEN 1
        ELSE 1 - exp(lgamma(n - c + 1) - lgamma(n - c - k + 1) - lgamma(n + 1) + lgamma(n - k + 1))
    END
) AS value
FROM (SELECT benchmark, subject, model, problem_id, sum(n) AS n, sum(c) AS c FROM counts GROUP BY ALL),
    (SELECT unnest([{ks}]) AS k)
GROUP BY ALL;
SELECT sum(n + ungraded) FROM counts
