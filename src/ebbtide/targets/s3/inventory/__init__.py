"""The inventory of a bucket: what it has, read from a listing or from an S3 Inventory report."""
