"""Spark: the session, the table contracts, digests and progress."""
