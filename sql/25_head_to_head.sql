-- head_to_head(a, b): two models problem by problem, on the problems both attempted under one protocol.
-- Grain: one row per benchmark, subject, protocol and problem_id. FROM head_to_head('m1', 'm2') ORDER BY gap.
-- gap is the pass rate of B minus that of A; winner is the model with the higher rate, null on a tie.
-- Pass/fail attempts only; problems without a graded attempt of both models are left out.
CREATE OR REPLACE MACRO head_to_head(a, b) AS TABLE
SELECT
    one.benchmark,
    one.subject,
    one.protocol,
    one.problem_id,
    one.n AS n_a,
    one.c AS c_a,
    two.n AS n_b,
    two.c AS c_b,
    two.c / two.n::DOUBLE - one.c / one.n::DOUBLE AS gap,
    CASE WHEN two.c::HUGEINT * one.n > one.c::HUGEINT * two.n THEN b
        WHEN two.c::HUGEINT * one.n < one.c::HUGEINT * two.n THEN a END AS winner
FROM problem_counts AS one
JOIN problem_counts AS two
    ON two.benchmark = one.benchmark AND two.subject = one.subject AND two.protocol = one.protocol
    AND two.problem_id = one.problem_id
WHERE one.model = a AND two.model = b AND one.n > 0 AND two.n > 0;
