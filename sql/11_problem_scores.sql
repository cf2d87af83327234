-- problem_scores: what every published pass number is made of.
-- Grain: one row per problem and k of the pass family; carried columns included.
-- Caveat: null where k > n and for problems without a graded attempt; never 0 instead.
CREATE OR REPLACE VIEW problem_scores AS
SELECT
    p.* EXCLUDE (n, c, ungraded),
    p.n,
    p.c,
    draws.k,
    pass_at_k(p.n, p.c, draws.k) AS pass_at_k,
    pass_hat_k(p.n, p.c, draws.k) AS pass_hat_k
FROM problem AS p
CROSS JOIN (
    SELECT DISTINCT k
    FROM model_summary
    WHERE family IN ('pass@k', 'pass^k')
) AS draws;
COMMENT ON VIEW problem_scores IS 'pass@k and pass^k of every problem with its n, c and k; the mean over a group is its value.';
