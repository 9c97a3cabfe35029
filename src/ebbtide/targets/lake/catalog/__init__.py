"""The embedded catalog: repositories, branches, commits, staging; SQL for heads, Parquet for content."""
