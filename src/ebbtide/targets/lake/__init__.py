"""Versioned lakes: the embedded catalog and the collectors that work on it."""
