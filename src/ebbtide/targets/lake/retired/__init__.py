"""Deleted repositories: their whole namespace is collected, by the same plan and apply as everything."""
