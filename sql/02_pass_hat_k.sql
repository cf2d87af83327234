-- pass_hat_k(n, c, k): chance that all of k attempts, drawn without replacement from n of which c are
-- correct, are correct (pass^k).
-- Grain: scalar. Null where it is not defined: any null, numbers that are not whole, c < 0, c > n, k < 1, k > n.
-- Caveat: a product of min(n - c, k) factors, exact to about 1e-15 of its size; where they would make it smaller
-- than any number it is 0.
CREATE OR REPLACE MACRO pass_hat_k(n, c, k) AS
    CASE
        WHEN (n >= 1 AND n <= 9223372036854775807 AND c >= 0 AND c <= n AND k >= 1 AND k <= n
            AND n = floor(n) AND c = floor(c) AND k = floor(k)) IS NOT TRUE THEN NULL
        WHEN c < k THEN 0.0
        WHEN c = n THEN 1.0
        ELSE list_product([(n - i - greatest(n - c, k))::DOUBLE / (n - i)::DOUBLE
            FOR i IN range(0, least(n - c, k, 1 + ceil(746 * n::DOUBLE / greatest(n - c, k)))::BIGINT)])
    END;
