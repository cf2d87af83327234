-- problem_scores: the value of every metric for every problem.
-- Grain: one row per problem and metric: pass@k and pass^k for every published k, and every requested metric
-- (--metrics, [metrics] names); includes carried columns.
-- Null if k > n or no attempt is graded, never 0. Metrics of group means (geom-ds, geo-spectrum) and bayes@N with a
-- prior learned per model have no value per problem.
CREATE OR REPLACE VIEW problem_scores AS
SELECT
    p.*,
    drawn.metric,
    drawn.k,
    CASE drawn.family WHEN 'pass@k' THEN pass_at_k(p.n, p.c, drawn.k) ELSE pass_hat_k(p.n, p.c, drawn.k) END AS value
FROM problem_counts AS p
CROSS JOIN (
    SELECT DISTINCT metric, family, k
    FROM model_summary
    WHERE family IN ('pass@k', 'pass^k')
) AS drawn
UNION ALL
SELECT p.*, shared.metric, shared.k, shared.value
FROM problem_counts AS p
JOIN source.count_score AS shared ON shared.n = p.n AND shared.c = p.c
-- where a lake mixes verdicts and scores, a metric has other inputs, or no value, in some benchmarks
SEMI JOIN model_summary AS present ON present.benchmark = p.benchmark AND present.metric = shared.metric
ANTI JOIN (
    SELECT DISTINCT groups.benchmark, own.metric
    FROM source.problem_score AS own
    JOIN source.problem_group AS groups ON groups._group = own._group
) AS listed ON listed.benchmark = p.benchmark AND listed.metric = shared.metric
UNION ALL
SELECT
    groups.* EXCLUDE (_group),
    names.problem_id,
    counts.* EXCLUDE (_group, _name),
    own.metric,
    own.k,
    own.value
FROM source.problem_score AS own
JOIN source.problem_count AS counts ON counts._group = own._group AND counts._name = own._name
JOIN source.problem_group AS groups ON groups._group = own._group
JOIN source.problem_name AS names ON names._name = own._name;
