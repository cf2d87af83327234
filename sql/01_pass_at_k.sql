-- pass_at_k(n, c, k): probability that at least one of k attempts is correct, drawn without replacement from n
-- attempts of which c are correct.
-- Grain: scalar. Null if undefined: any null, a non-integer, c < 0, c > n, k < 1, or k > n.
-- Computed as a product of min(c, k) factors without factorials or lgamma: the absolute error is about 1e-15 for any n
-- (a result near 0 has fewer correct digits). Factors too close to 1 to change a digit are skipped.
CREATE OR REPLACE MACRO pass_at_k(n, c, k) AS
    CASE
        WHEN (n >= 1 AND n <= 9223372036854775807 AND c >= 0 AND c <= n AND k >= 1 AND k <= n
            AND n = floor(n) AND c = floor(c) AND k = floor(k)) IS NOT TRUE THEN NULL
        WHEN c = 0 THEN 0.0
        WHEN n - c < k THEN 1.0
        ELSE 1.0 - list_product([1.0 - greatest(c, k)::DOUBLE / (n - i)::DOUBLE
            FOR i IN range(0, least(c, k, 1 + ceil(40 * n::DOUBLE / greatest(c, k)))::BIGINT)])
    END;
