"""The static page: one file that opens from disk or mail, from the published tables alone."""
