"""What readers see of an output: a session, leaderboards in a terminal, claims in words, and a check of it all."""
