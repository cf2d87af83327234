-- problem_counts: every problem with its keys, counts (n graded, c correct, ungraded), rewards and carried columns.
-- Grain: one row per benchmark, subject, model, protocol and problem_id.
-- Key texts are stored once, in source.problem_group and source.problem_name; source.problem_count has integers.
CREATE OR REPLACE VIEW problem_counts AS
SELECT
    groups.* EXCLUDE (_group),
    names.problem_id,
    counts.* EXCLUDE (_group, _name)
FROM source.problem_count AS counts
JOIN source.problem_group AS groups ON groups._group = counts._group
JOIN source.problem_name AS names ON names._name = counts._name;
