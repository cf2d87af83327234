-- protocol: the evaluation protocols of the lake in readable form.
-- Grain: one row per protocol; "protocol" is the text that other tables use.
-- One more column per key of [protocol] columns: numbers and booleans keep their type, everything else is text. Column
-- names are case-insensitive; a key whose name is taken gets a trailing _.
CREATE OR REPLACE VIEW protocol AS
SELECT * EXCLUDE (_grader, _other)
FROM source.protocol_key;
