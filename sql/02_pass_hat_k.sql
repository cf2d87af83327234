-- pass_hat_k(n, c, k): probability that all of k attempts are correct, drawn without replacement from n attempts of
-- which c are correct (pass^k).
-- Grain: scalar. Null if undefined: any null, a non-integer, c < 0, c > n, k < 1, or k > n.
-- Computed as a product of min(n - c, k) factors: the relative error is about 1e-15; 0 on underflow.
CREATE OR REPLACE MACRO pass_hat_k(n, c, k) AS
    CASE
        WHEN (n >= 1 AND n <= 9223372036854775807 AND c >= 0 AND c <= n AND k >= 1 AND k <= n
            AND n = floor(n) AND c = floor(c) AND k = floor(k)) IS NOT TRUE THEN NULL
        WHEN c < k THEN 0.0
        WHEN c = n THEN 1.0
        ELSE list_product([(n - i - greatest(n - c, k))::DOUBLE / (n - i)::DOUBLE
            FOR i IN range(0, least(n - c, k, 1 + ceil(746 * n::DOUBLE / greatest(n - c, k)))::BIGINT)])
    END;
