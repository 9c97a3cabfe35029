"""Transitions: moves to another storage class or location. One complete copy exists at any time."""
