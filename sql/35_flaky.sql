-- flaky: problems that a model solves in some attempts and fails in others.
-- Grain: one row per benchmark, subject, protocol, problem_id and model.
CREATE OR REPLACE VIEW flaky AS
SELECT benchmark, subject, protocol, problem_id, model, n, c, c / n::DOUBLE AS rate
FROM problem_counts
WHERE c > 0 AND c < n;
