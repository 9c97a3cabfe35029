"""The reaper: deletes online what lost its last reference, after a grace period."""
