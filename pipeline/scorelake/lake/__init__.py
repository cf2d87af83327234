"""List a lake, cut it into shards, copy remote files to a disk, and infer the columns of an unknown lake."""
