-- grader_disagreement: two graders on the same problems of a model, under otherwise identical protocols.
-- Grain: one row per benchmark, model, remaining protocol and pair of graders. Empty unless a protocol column name
-- contains "grader" or "judge".
-- Compares n and c of the same problem under both graders. Counts do not identify attempts: if n is equal, the attempts
-- are assumed to be the same. Then at least |c_a - c_b| of them were graded differently (least_disagreement) and at most
-- as many as the counts allow (most_disagreement), as shares of attempts. The bounds are meaningless if the graders saw
-- different attempts.
CREATE OR REPLACE VIEW grader_disagreement AS
WITH graded AS (
    SELECT
        counts.benchmark,
        counts.subject,
        counts.model,
        counts.problem_id,
        protocols._grader AS grader,
        protocols._other AS otherwise,
        counts.n,
        counts.c
    FROM problem_counts AS counts
    JOIN source.protocol_key AS protocols ON protocols.protocol = counts.protocol
    WHERE protocols._grader IS NOT NULL AND counts.n > 0 AND counts.c IS NOT NULL
),
matched AS (
    SELECT
        a.benchmark,
        a.model,
        a.otherwise,
        a.grader AS grader_a,
        b.grader AS grader_b,
        a.problem_id,
        b.c / b.n::DOUBLE - a.c / a.n::DOUBLE AS gap,
        CASE WHEN a.n = b.n THEN a.n END AS n,
        abs(a.c - b.c) AS differing,
        least(a.c + b.c, a.n + b.n - a.c - b.c) AS room
    FROM graded AS a
    JOIN graded AS b
        ON b.benchmark = a.benchmark AND b.subject = a.subject AND b.model = a.model AND b.problem_id = a.problem_id
        AND b.otherwise IS NOT DISTINCT FROM a.otherwise AND b.grader > a.grader
)
SELECT
    benchmark,
    model,
    otherwise,
    grader_a,
    grader_b,
    count(*) AS problems,
    avg(gap) AS gap,
    avg(abs(gap)) AS absolute_gap,
    count(n) AS problems_matched,
    sum(differing) FILTER (n IS NOT NULL) / sum(n)::DOUBLE AS least_disagreement,
    sum(room) FILTER (n IS NOT NULL) / sum(n)::DOUBLE AS most_disagreement,
    list(problem_id ORDER BY abs(gap) DESC, problem_id)[1:3] AS examples
FROM matched
GROUP BY ALL;
