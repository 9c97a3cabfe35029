"""Alembic migrations of the embedded catalog."""
