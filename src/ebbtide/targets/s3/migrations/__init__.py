"""Alembic migrations of the bucket rules."""
