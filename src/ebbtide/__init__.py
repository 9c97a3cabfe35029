"""Ebbtide decides which stored data may be forgotten, shows why, and forgets it safely."""

__version__ = "0.1.0"
