"""Stage 6. An immutable snapshot, then one leaderboard.duckdb, each put in place by a single rename."""
