"""Counting without strings: Parquet pages -> codes -> packed rows -> counts per key, compiled by numba.

For the common shape of a lake (text keys, a boolean verdict, small attempt numbers) this is several times faster than
any query engine; every other shape is counted by tally.py. Nothing is assumed: codes stand for exact bytes, and
pages are checked as they are read.
"""
