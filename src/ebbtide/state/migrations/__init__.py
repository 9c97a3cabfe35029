"""Alembic migrations of the run ledger."""
