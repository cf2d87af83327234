"""The four outcomes that a row of a lake can have."""

FAILED, PASSED, UNGRADED, REJECTED = range(4)
OUTCOMES = {"passed": PASSED, "failed": FAILED, "ungraded": UNGRADED}
"""Column names of the outcomes that are counted; rejected rows are counted apart."""
