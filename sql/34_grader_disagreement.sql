-- grader_disagreement: two graders on the same problems of a model, under protocols that are otherwise the same.
-- Grain: one row per benchmark, model, rest of the protocol and two graders. Empty unless a protocol column has
-- "grader" or "judge" in its name.
-- What is compared: n and c of the same problem under either grader. Counts do not say which attempt is which. Where
-- n is the same the attempts are taken to be the same ones; then at least |c_a - c_b| of them were judged differently
-- (least_disagreement) and at most as many as the counts leave room for (most_disagreement), as shares of attempts.
-- Caveat: if the two graders saw different attempts of the same n, these bounds are about nothing.
CREATE OR REPLACE VIEW grader_disagreement AS
WITH graded AS (
    SELECT
        counts.benchmark,
        counts.subject,
        counts.model,
        counts.problem_id,
        told._grader AS grader,
        told._other AS otherwise,
        counts.n,
        counts.c
    FROM problem_counts AS counts
    JOIN internal.protocol_key AS told ON told.protocol = counts.protocol
    WHERE told._grader IS NOT NULL AND counts.n > 0 AND counts.c IS NOT NULL
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
COMMENT ON VIEW grader_disagreement IS 'Two graders on the same problems of a model: how far apart, and how many attempts they must have judged differently.';
COMMENT ON COLUMN grader_disagreement.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN grader_disagreement.model IS 'the model as the lake names it';
COMMENT ON COLUMN grader_disagreement.otherwise IS 'the rest of the protocol, which both share; null if there is none';
COMMENT ON COLUMN grader_disagreement.grader_a IS 'one grader';
COMMENT ON COLUMN grader_disagreement.grader_b IS 'the other';
COMMENT ON COLUMN grader_disagreement.problems IS 'problems of the model that both graded';
COMMENT ON COLUMN grader_disagreement.gap IS 'mean over problems of the share passed by B minus that passed by A';
COMMENT ON COLUMN grader_disagreement.absolute_gap IS 'the same without signs';
COMMENT ON COLUMN grader_disagreement.problems_matched IS 'problems with the same n under both, whose attempts are taken to be the same';
COMMENT ON COLUMN grader_disagreement.least_disagreement IS 'share of the attempts of those problems that must have been judged differently';
COMMENT ON COLUMN grader_disagreement.most_disagreement IS 'share that can have been';
COMMENT ON COLUMN grader_disagreement.examples IS 'up to three problems where the two are farthest apart';
