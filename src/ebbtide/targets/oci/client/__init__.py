"""Clients of registries: the OCI distribution API, and image-layout folders, behind one protocol."""
