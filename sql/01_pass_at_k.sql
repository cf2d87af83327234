-- pass_at_k(n, c, k): chance that at least one of k attempts, drawn without replacement from n of which
-- c are correct, is correct.
-- Grain: scalar. Null where it is not defined: any null, numbers that are not whole, c < 0, c > n, k < 1, and
-- k > n, which is never papered over.
-- Caveat: a product of min(c, k) factors, never factorials or lgamma, so it is exact to about 1e-15 at any n;
-- factors that could no longer change a digit are left out.
CREATE OR REPLACE MACRO pass_at_k(n, c, k) AS
    CASE
        WHEN (n >= 1 AND n <= 9223372036854775807 AND c >= 0 AND c <= n AND k >= 1 AND k <= n
            AND n = floor(n) AND c = floor(c) AND k = floor(k)) IS NOT TRUE THEN NULL
        WHEN c = 0 THEN 0.0
        WHEN n - c < k THEN 1.0
        ELSE 1.0 - list_product([1.0 - greatest(c, k)::DOUBLE / (n - i)::DOUBLE
            FOR i IN range(0, least(c, k, 1 + ceil(40 * n::DOUBLE / greatest(c, k)))::BIGINT)])
    END;
