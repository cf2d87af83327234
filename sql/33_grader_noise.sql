-- grader_noise: how often the same answer to the same problem got both verdicts.
-- Grain: one row per benchmark, model and protocol of a lake that has answers; grader is the value of the protocol
-- column whose name has "grader" or "judge" in it, null where there is none.
-- Answers are the same if they are the same to the letter. disagreement is the chance that two attempts with the same
-- answer to the same problem were judged differently: 0 for a grader that only looks at the answer. examples are the
-- problems with the most such pairs.
-- Caveat: an answer is often a short extract of what was graded; then two verdicts may both be right.
CREATE OR REPLACE VIEW grader_noise AS
SELECT
    noise.benchmark,
    noise.model,
    told._grader AS grader,
    noise.protocol,
    noise.problems,
    noise.answers,
    noise.answers_repeated,
    noise.answers_mixed,
    noise.answers_mixed / nullif(noise.answers_repeated, 0)::DOUBLE AS share_mixed,
    noise.attempts_repeated,
    noise.attempts_odd,
    noise.disagreement,
    noise.examples
FROM internal.answer_noise AS noise
JOIN internal.protocol_key AS told ON told.protocol = noise.protocol;
COMMENT ON VIEW grader_noise IS 'How often the same answer to the same problem got both verdicts, with examples of problems.';
COMMENT ON COLUMN grader_noise.benchmark IS 'a set of problems scored together';
COMMENT ON COLUMN grader_noise.model IS 'the model as the lake names it';
COMMENT ON COLUMN grader_noise.grader IS 'who graded, where a protocol column says so';
COMMENT ON COLUMN grader_noise.protocol IS 'the protocol columns as JSON; empty when none are configured';
COMMENT ON COLUMN grader_noise.problems IS 'problems that have an answer';
COMMENT ON COLUMN grader_noise.answers IS 'different answers, problem by problem';
COMMENT ON COLUMN grader_noise.answers_repeated IS 'those that two or more graded attempts gave';
COMMENT ON COLUMN grader_noise.answers_mixed IS 'of those, the ones that both passed and failed';
COMMENT ON COLUMN grader_noise.share_mixed IS 'answers_mixed as a share of answers_repeated';
COMMENT ON COLUMN grader_noise.attempts_repeated IS 'attempts with an answer that others gave too';
COMMENT ON COLUMN grader_noise.attempts_odd IS 'attempts whose verdict is not the more frequent one of their answer';
COMMENT ON COLUMN grader_noise.disagreement IS 'chance that two attempts with the same answer got different verdicts';
COMMENT ON COLUMN grader_noise.examples IS 'up to three problems with the most such pairs of attempts';
