-- problem_counts: every problem with its keys, counts (n graded, c correct, ungraded), rewards and carried columns.
-- Grain: one row per benchmark, subject, model, protocol and problem_id.
-- Key texts are stored once, in internal.problem_group and internal.problem_name; internal.problem_count has integers.
CREATE OR REPLACE VIEW problem_counts AS
SELECT
    groups.* EXCLUDE (_group),
    names.problem_id,
    counts.* EXCLUDE (_group, _name)
FROM internal.problem_count AS counts
JOIN internal.problem_group AS groups ON groups._group = counts._group
JOIN internal.problem_name AS names ON names._name = counts._name;
