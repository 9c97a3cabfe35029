"""Retention of committed data: what only commits reach that have not been heads for long enough."""
