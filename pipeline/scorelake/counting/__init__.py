"""Stage 2: one shard of attempts -> one partial."""
