"""Ways to break online hard delete: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

EXPLORED = ("tests/property/test_reaper_interleavings.py", "tests/contract/catalog/test_reclaim.py")
QUEUE = ("tests/contract/catalog/test_reclaim.py",)
BESIDE = ("tests/integration/test_reaper_beside_runs.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a fence stops nobody",
        "targets/lake/catalog/reclaim_queue.py",
        "    if found is not None and found.state != QueueState.WAITING:\n        raise gone(found)\n",
        "    if found is not None and found.state != QueueState.WAITING:\n        return\n",
        EXPLORED,
    ),
    (
        "what is staged needs nothing",
        "targets/lake/catalog/reclaim_queue.py",
        "select(_staged.c.address).where(_staged.c.address.in_(part), ~_staged.c.tombstone),",
        "select(_staged.c.address).where(_staged.c.address.in_(part), _staged.c.tombstone),",
        QUEUE,
    ),
    (
        "a shared object that was committed is taken for free",
        "targets/lake/catalog/commits.py",
        "            reclaim_queue.note_commit(writing, target, layer)\n",
        "",
        QUEUE,
    ),
    (
        "what is linked all the same waits on",
        "targets/lake/catalog/uploads.py",
        "            reclaim_queue.dequeue(writing.connection, writing.repository.uid, [address])\n",
        "",
        QUEUE,
    ),
    (
        "what a commit takes in waits on",
        "targets/lake/catalog/reclaim_queue.py",
        "    writing.connection.execute(delete(queue).where(*waits, held))\n",
        "",
        QUEUE,
    ),
    (
        "a copy is not recorded",
        "targets/lake/catalog/objects.py",
        "            reclaim_queue.note_sharing(writing, source.address, committed=not staged)\n",
        "",
        QUEUE,
    ),
    (
        "a copy of a commit's object is recorded as staged",
        "targets/lake/catalog/objects.py",
        "committed=not staged)",
        "committed=False)",
        QUEUE,
    ),
    (
        "an import is not recorded",
        "targets/lake/catalog/imports.py",
        "                reclaim_queue.note_import(writing, made)\n",
        "",
        QUEUE,
    ),
    (
        "a reset queues nothing",
        "targets/lake/catalog/staging.py",
        "    _queue(writing, DropReason.RESET, _rows.c.branch_id == branch.id, _between(prefix))\n",
        "",
        QUEUE,
    ),
    (
        "no grace period",
        "targets/lake/catalog/reclaim_queue.py",
        ".where(_queue.c.queued <= to_micros(now - grace))",
        ".where(_queue.c.queued <= to_micros(now))",
        QUEUE,
    ),
    (
        "the numbers of fences begin anew",
        "targets/lake/catalog/reclaim_queue.py",
        "where(_queue.c.repo_uid == repo_uid, *old, known))",
        "where(_queue.c.repo_uid == repo_uid, *old))",
        QUEUE,
    ),
    (
        "what is restored is left to the reaper",
        "targets/lake/catalog/reclaim_batches.py",
        "            reclaim_queue.dequeue(connection, target_uid, waiting)\n",
        "",
        QUEUE,
    ),
    (
        "what is reaped while a run is planned stops it",
        "targets/lake/catalog/reclaim_batches.py",
        "reclaim_queue.stream_queue(connection, target_uid, QueueState.FENCED, QueueState.GONE)",
        "reclaim_queue.stream_queue(connection, target_uid, QueueState.WAITING)",
        BESIDE,
    ),
    (
        "what was shared before the migration is not recorded",
        "targets/lake/catalog/migrations/catalog_4.py",
        "HAVING count(*) > 1",
        "HAVING count(*) > 2",
        QUEUE,
    ),
)
