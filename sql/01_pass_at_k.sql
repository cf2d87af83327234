-- pass_at_k(n, c, k): chance that at least one of k attempts, drawn without replacement from n of which
-- c are correct, is correct.
-- Grain: scalar. Null when k < 1 or k > n: k > n is never papered over.
-- Caveat: a product of min(c, k) factors, never factorials or lgamma, so it is exact to about 1e-15 at any n.
CREATE OR REPLACE MACRO pass_at_k(n, c, k) AS
    CASE
        WHEN k < 1 OR k > n THEN NULL
        WHEN c = 0 THEN 0.0
        WHEN n - c < k THEN 1.0
        ELSE 1.0 - list_product([1.0 - greatest(c, k)::DOUBLE / (n - i)::DOUBLE
                                 FOR i IN range(0, least(c, k)::BIGINT)])
    END;
