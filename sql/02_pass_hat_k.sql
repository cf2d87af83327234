-- pass_hat_k(n, c, k): chance that all of k attempts, drawn without replacement from n of which c are
-- correct, are correct (pass^k).
-- Grain: scalar. Null when k < 1 or k > n.
CREATE OR REPLACE MACRO pass_hat_k(n, c, k) AS
    CASE
        WHEN k < 1 OR k > n THEN NULL
        WHEN c < k THEN 0.0
        ELSE list_product([(c - i)::DOUBLE / (n - i)::DOUBLE FOR i IN range(0, k::BIGINT)])
    END;
