-- protocol: the evaluation protocols of the lake, as people read them.
-- Grain: one row per protocol; "protocol" is the text that every other table has.
-- One column per key of [protocol] columns beside the label: numbers as numbers, truths as truths, all else as text.
-- Caveat: names have no case here; a key whose name is taken already has _ at its end.
CREATE OR REPLACE VIEW protocol AS
SELECT * EXCLUDE (_grader, _other)
FROM internal.protocol_key;
COMMENT ON VIEW protocol IS 'The evaluation protocols: a label such as temperature=0.2, and one column per key.';
COMMENT ON COLUMN protocol.protocol IS 'the protocol columns as JSON, as in every other table; empty when none are configured';
COMMENT ON COLUMN protocol.label IS 'the same as people read it, such as temperature=0.2, grader=x';
