"""
Buckets under S3 lifecycle rules.

| package or module | contains |
|---|---|
| `rules` | lifecycle configurations: documents, validation, warnings, storage classes |
| `inventory` | what a bucket has: the listing, or an S3 Inventory report; tags and locks |
| `evaluation` | what the rules do with each item, in Spark; `oracle` is the same in plain Python |
| `actions` | deletes and aborts on the executors, with a check directly before each |
| `transition` | moves to other storage classes and locations |
| `planner`, `collector`, `target`, `kind` | a bucket as a target of the engine |
| `nested` | locations and lakes inside a bucket, where its rules do not apply |
| `explanation`, `run_history` | why an item is due or held, and what runs did to it |
| `forecast`, `simulation`, `policy_suite` | what rules would do: later, to given items, in tests |
"""
