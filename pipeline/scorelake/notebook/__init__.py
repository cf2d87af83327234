"""The Python API: boards, comparisons and charts."""
