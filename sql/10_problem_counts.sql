-- problem_counts: graded (n), correct (c) and ungraded attempts of every problem, and its rewards.
-- Grain: one row per benchmark, subject, model, protocol and problem_id.
-- Carried columns (title, difficulty, ...) are in the view problem.
CREATE OR REPLACE VIEW problem_counts AS
SELECT benchmark, subject, model, protocol, problem_id, n, c, ungraded, reward_mean, reward_max
FROM problem;
