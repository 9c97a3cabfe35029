"""Buckets under S3 lifecycle rules: what they hold, what the rules say of it, and doing it."""
