"""Bytes: on a disk, in memory, in object storage. There as they were written, or not there."""
