"""Transitions: moving versions to another storage class or location, so that one whole copy always exists."""
