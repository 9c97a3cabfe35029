"""Ways to break the recycle bin: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

MOVES = ("tests/contract/store/test_move.py",)
COPIES = ("tests/contract/store/test_copies.py",)
UNIT = ("tests/unit/engine/test_recycling.py", "tests/unit/engine/test_restoring.py")
BUCKET = ("tests/unit/bucket/test_recycling.py", "tests/integration/test_bucket_recycling.py")
VERSIONS = ("tests/contract/bucket/test_version_bin.py",)
WHOLE = ("tests/integration/test_lake_recycling.py", "tests/contract/targets/test_target_contract.py")
OBJECTS = ("tests/property/test_store_actor.py",)
OLD = ("tests/integration/test_old_bins.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a copy on S3 is believed without proof",
        "storage/s3_copy.py",
        "if not has_same_bytes(self.objects, found, held, self.sizes):",
        "if False:",
        MOVES,
    ),
    (
        "as many bytes count as the same bytes",
        "storage/s3_copy.py",
        "return _digest(objects, found, sizes) == _digest(objects, held, sizes)",
        "return True",
        MOVES,
    ),
    (
        "a copy has the usual storage class",
        "storage/s3_objects.py",
        'found = {} if storage_class == "STANDARD" else {"StorageClass": storage_class}',
        "found = {}",
        COPIES,
    ),
    (
        "whoever can read a bucket can read what a key of somebody's own closes",
        "storage/s3_objects.py",
        'if answer.get(ENCRYPTION, "").startswith("aws:kms"):',
        "if False:",
        COPIES,
    ),
    (
        "what is archived is copied unread",
        "storage/s3_copy.py",
        "if found.storage_class not in _AT_HAND:",
        "if False:",
        COPIES,
    ),
    (
        "a copy that nobody can read is made",
        "storage/s3_copy.py",
        "    if not by_etag:\n",
        "    if False:\n",
        COPIES,
    ),
    (
        "a file that is there is taken for the same",
        "storage/local.py",
        "if not _are_same(source, target):",
        "if False:",
        MOVES,
    ),
    (
        "a bucket that is not there has nothing in it",
        "storage/s3_copy.py",
        "            self.objects.check_bucket()\n",
        "",
        MOVES,
    ),
    (
        "who empties the bin reaches everything",
        "engine/actor.py",
        "if self.only_below and not address.startswith(self.only_below):",
        "if False:",
        UNIT,
    ),
    (
        "what came to be needed stays in the bin",
        "engine/recycle.py",
        "if self.attempt.resumed:",
        "if False:",
        UNIT,
    ),
    (
        "another content in the bin counts as set aside",
        "engine/recycle.py",
        "    if moved.outcome is Outcome.DELETED:\n",
        "    if moved.outcome in (Outcome.DELETED, Outcome.TAKEN):\n",
        UNIT,
    ),
    (
        "what a killed restore had begun is forgotten",
        "engine/restore.py",
        "if number not in done:",
        "if False:",
        UNIT,
    ),
    (
        "an interrupted apply is no matter to a restore",
        "engine/restore.py",
        "half = run.collector != RESTORE and",
        "half = False and",
        UNIT,
    ),
    (
        "plans from before a restore are applied",
        "engine/restore.py",
        "    if later is not None:\n",
        "    if False:\n",
        WHOLE,
    ),
    (
        "what was restored still counts as removed",
        "engine/removed_items.py",
        'later, "left_anti").select("hash")',
        'later & f.lit(False), "left_anti").select("hash")',
        ("tests/integration/test_removed_items.py",),
    ),
    (
        "garbage that came back is not looked for",
        "targets/lake/bin.py",
        "        unsettle(self.contents.store, self.identity.uid, [item.address for item in page], run_id)\n",
        "        _ = page, run_id\n",
        WHOLE,
    ),
    (
        "another setting does not make a plan stale",
        "targets/repository/collector.py",
        "if days != (plan.recycling.days if plan.recycling else None):",
        "if False:",
        WHOLE,
    ),
    (
        "rules reach into the bin of a bucket",
        "targets/s3/planner.py",
        "return (BIN_ROOT, *(prefix for prefix in found if prefix != BIN_ROOT))",
        "return found",
        BUCKET,
    ),
    (
        "a plan reaches into the bin of a bucket",
        "targets/s3/actions/deleter.py",
        "if is_in_bin(item.key) and item.action != Action.ABORT_UPLOAD:",
        "if False:",
        BUCKET,
    ),
    (
        "what was written again goes into the bin",
        "targets/s3/bin.py",
        "same = same_moment(item.micros, to_micros(info.last_modified))",
        "same = True",
        ("tests/contract/bucket/test_setting_aside.py",),
    ),
    (
        "a version is deleted without a copy",
        "targets/s3/versioned_bin.py",
        "return keeper.keep(item.key, item.version, item.etag, name) or True",
        "return True",
        VERSIONS,
    ),
    (
        "a copy of a version is believed without proof",
        "targets/s3/versioned_bin.py",
        "        if held is not None and has_same_bytes(self.objects, found, held, self.sizes):\n",
        "        if held is not None:\n",
        VERSIONS,
    ),
    (
        "a marker is removed whatever came after it",
        "targets/s3/versioned_bin.py",
        "if not rows[0].is_delete_marker or rows[1].version_id != kept.version:",
        "if False:",
        VERSIONS,
    ),
    (
        "who empties the bin of versions reaches everything",
        "targets/s3/versioned_bin.py",
        "if not name.startswith(BIN_ROOT):",
        "if False:",
        VERSIONS,
    ),
    (
        "objects come back over null versions",
        "targets/s3/bin.py",
        "if open_bucket(bucket.spec).versioning() == Versioning.SUSPENDED:",
        "if False:",
        ("tests/contract/bucket/test_suspended.py",),
    ),
    (
        "a killed restore goes on whatever became of the bucket",
        "targets/s3/bin.py",
        "            return super().bring_back(page, choice)\n        check_not_suspended(self.bucket)\n",
        "            return super().bring_back(page, choice)\n",
        ("tests/contract/bucket/test_suspended.py",),
    ),
    (
        "what lies in the bin has no label",
        "targets/repository/collector.py",
        "        contents.write(label)\n",
        "",
        WHOLE,
    ),
    (
        "what was rewritten goes into the bin of another package's target",
        "engine/recycle.py",
        "return Recycler(spec, attempt, place, contents.root, by_etag=True)",
        "return Recycler(spec, attempt, place, contents.root, by_etag=False)",
        OBJECTS,
    ),
    (
        "what was rewritten is deleted for another package's target",
        "engine/recycle.py",
        "not_below=contents.root, by_etag=True)",
        "not_below=contents.root, by_etag=False)",
        OBJECTS,
    ),
    (
        "what the plan does not know is removed",
        "engine/actor.py",
        "for key, etag in etags.items() if not etag}",
        "for key, etag in etags.items() if False}",
        OBJECTS,
    ),
    (
        "a plan of another package's target reaches its bin",
        "engine/actor.py",
        "if not_below and address.startswith(not_below):",
        "if False:",
        OBJECTS,
    ),
    (
        "entries of earlier versions are not read",
        "targets/oci/bin/entry.py",
        'VERSION = "1"',
        'VERSION = "2"',
        OLD,
    ),
)
