-- grader_noise: how often the same answer to the same problem both passed and failed.
-- Grain: one row per benchmark, model and protocol of a lake with answers; grader is the value of the protocol column
-- whose name contains "grader" or "judge", or null.
-- Answers are compared exactly. disagreement is the probability that two attempts with the same answer to the same
-- problem were graded differently: 0 for a grader that only uses the answer. examples are the problems with the most
-- such pairs. An answer is often a short extract of what was graded; then both verdicts may be right.
CREATE OR REPLACE VIEW grader_noise AS
SELECT
    noise.benchmark,
    noise.model,
    protocols._grader AS grader,
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
FROM source.answer_noise AS noise
JOIN source.protocol_key AS protocols ON protocols.protocol = noise.protocol;
