"""Uncommitted garbage (seed 001): what lies in the store and nothing references."""
