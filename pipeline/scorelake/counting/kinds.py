"""The four kinds of outcome that a row can have."""

FAILED, PASSED, UNGRADED, BAD = range(4)
COUNTED = {"passed": PASSED, "failed": FAILED, "ungraded": UNGRADED}
"""Under which name each kind is counted; a bad row is under none."""
