"""Alembic migrations of the image records."""
