"""What a notebook holds: attempts from frames and matrices, a board to ask, comparisons and drawings."""
