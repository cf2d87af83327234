-- pair: every pair of models in both orders, so that all comparisons of one model need a single WHERE.
-- Grain: one row per benchmark, metric, protocol, model_a and model_b.
-- The second SELECT exchanges the models: lift and interval change sign, wins are swapped, claim is that of A over B.
CREATE OR REPLACE VIEW pair AS
WITH oriented AS (
    FROM source.model_pair
    UNION ALL
    SELECT
        * REPLACE (
            model_b AS model_a, model_a AS model_b, 0 - lift AS lift, 0 - hi AS lo, 0 - lo AS hi,
            wins_b AS wins_a, wins_a AS wins_b, p_one_sided_a AS p_one_sided, claim_a AS claim
        )
    FROM source.model_pair
)
SELECT * EXCLUDE (p_one_sided_a, claim_a)
FROM oriented
LEFT JOIN source.pair_measure USING (benchmark, protocol, metric, model_a, model_b);
