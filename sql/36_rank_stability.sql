-- rank_stability: do two graders put the models of a benchmark into the same order?
-- Grain: one row per benchmark, metric, pair of graders and remaining protocol settings under which both graded models.
-- tau is Kendall's: the share of pairs of models in the same order minus the share in the opposite one.
CREATE OR REPLACE VIEW rank_stability AS
WITH scores AS (
    SELECT benchmark, metric, model, value, rank, keys._grader AS grader, keys._other AS otherwise
    FROM leaderboard JOIN source.protocol_key AS keys USING (protocol)
    WHERE rank IS NOT NULL AND keys._grader IS NOT NULL
),
graded AS (
    SELECT
        one.benchmark, one.metric, one.otherwise, one.model, one.grader AS grader_a, two.grader AS grader_b,
        one.value AS value_a, two.value AS value_b, one.rank AS rank_a, two.rank AS rank_b
    FROM scores AS one JOIN scores AS two
        ON one.benchmark = two.benchmark AND one.metric = two.metric AND one.model = two.model
        AND one.otherwise IS NOT DISTINCT FROM two.otherwise AND one.grader < two.grader
)
SELECT
    x.benchmark, x.metric, x.otherwise, x.grader_a, x.grader_b,
    count(DISTINCT x.model) + 1 AS models,
    count(*) AS pairs,
    count(*) FILTER (sign(x.value_a - y.value_a) * sign(x.value_b - y.value_b) < 0) AS exchanged,
    avg(sign(x.value_a - y.value_a) * sign(x.value_b - y.value_b)) AS tau,
    max(greatest(abs(x.rank_a - x.rank_b), abs(y.rank_a - y.rank_b))) AS largest_move
FROM graded AS x JOIN graded AS y
    ON x.benchmark = y.benchmark AND x.metric = y.metric AND x.otherwise IS NOT DISTINCT FROM y.otherwise
    AND x.grader_a = y.grader_a AND x.grader_b = y.grader_b AND x.model < y.model
GROUP BY ALL;
