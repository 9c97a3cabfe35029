"""S3 lifecycle configurations: what they say, how they are written, and what S3 refuses. Pure."""
