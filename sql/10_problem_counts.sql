-- problem_counts: graded (n), correct (c) and ungraded attempts of every problem, and its rewards.
-- Grain: one row per benchmark, subject, model, protocol and problem_id.
-- Caveat: carried columns (title, difficulty, ...) are in the view `problem` beside these.
CREATE OR REPLACE VIEW problem_counts AS
SELECT benchmark, subject, model, protocol, problem_id, n, c, ungraded, reward_mean, reward_max
FROM problem;
COMMENT ON VIEW problem_counts IS 'One row per problem: n graded attempts, c correct, ungraded left out of n; mean and best score.';
