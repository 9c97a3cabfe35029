"""What a bucket holds, as one table: listed by the executors, or read from an S3 Inventory report."""
