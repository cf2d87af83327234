-- problem_scores: what every published number is made of.
-- Grain: one row per problem and metric: pass@k and pass^k of every k published, and every metric that was named
-- (--metrics, [metrics] names); carried columns included.
-- Caveat: null where k > n and for problems without a graded attempt; never 0 instead. Blends of group means
-- (geom-ds, geo-spectrum) have no value of a problem, nor has bayes@N under a prior that is learnt per model.
CREATE OR REPLACE VIEW problem_scores AS
SELECT
    p.*,
    drawn.metric,
    drawn.k,
    CASE drawn.family WHEN 'pass@k' THEN pass_at_k(p.n, p.c, drawn.k) ELSE pass_hat_k(p.n, p.c, drawn.k) END AS value
FROM problem AS p
CROSS JOIN (
    SELECT DISTINCT metric, family, k
    FROM model_summary
    WHERE family IN ('pass@k', 'pass^k')
) AS drawn
UNION ALL
SELECT p.*, shared.metric, shared.k, shared.value
FROM problem AS p
JOIN internal.count_score AS shared ON shared.n = p.n AND shared.c = p.c
UNION ALL
SELECT
    groups.* EXCLUDE (_group),
    names.problem_id,
    counts.* EXCLUDE (_group, _name),
    own.metric,
    own.k,
    own.value
FROM internal.problem_score AS own
JOIN internal.problem_count AS counts ON counts._group = own._group AND counts._name = own._name
JOIN internal.problem_group AS groups ON groups._group = own._group
JOIN internal.problem_name AS names ON names._name = own._name;
COMMENT ON VIEW problem_scores IS 'The value of every problem and metric with its n and c; the mean over a group is the value of its summary.';
COMMENT ON COLUMN problem_scores.value IS 'finite-bank value of the problem; null where it has fewer than k graded attempts';
