"""S3 lifecycle configurations: typed rules, documents, validation with S3's error codes, and warnings."""
