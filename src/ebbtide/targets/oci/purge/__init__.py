"""The purge of a registry: planned from a scan, applied image by image."""
