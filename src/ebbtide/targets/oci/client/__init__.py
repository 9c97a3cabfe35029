"""Talking to registries: the OCI distribution API, and image-layout folders behind the same protocol."""
