"""Stage 1. What is there: the listing, how it is cut into shards, and their files brought to a disk."""
