"""Ways to break the table of removed items: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

TABLE = ("tests/unit/engine/test_removed_items.py",)
REPLAY = ("tests/property/test_removed_items_equal_replay.py",)
RESTORES = ("tests/unit/engine/test_restoring.py",)
RULES = ("tests/unit/bucket/test_semantics.py",)
ON_SPARK = ("tests/integration/test_removed_items.py",)

FREED = ("tests/unit/bucket/test_freed_bytes.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a restored item is forgotten by the next plan",
        "engine/removed_items.py",
        "        if not self.restored:\n            return verdicts\n",
        "        if True:\n            return verdicts\n",
        ON_SPARK,
    ),
    (
        "folding forgets a later restore",
        "engine/removed_items.py",
        "np.append(differs, True)",
        "np.append(True, differs)",
        REPLAY,
    ),
    (
        "a hold of a restored item never ends",
        "engine/removed_table.py",
        "keep = _not_lapsed(now) if first == 0 else None",
        "keep = None",
        TABLE,
    ),
    (
        "a lapsed row is dropped while an older segment still needs it",
        "engine/removed_table.py",
        "keep = _not_lapsed(now) if first == 0 else None",
        "keep = _not_lapsed(now)",
        TABLE,
    ),
    (
        "a restored item is not held",
        "engine/restore.py",
        "return days_after(now, days) if days else None",
        "return None",
        RESTORES,
    ),
    (
        "the oracle does not hold a restored version",
        "targets/s3/oracle.py",
        "if item.restoring or (item.restored_until is not None and now < item.restored_until):",
        "if item.restoring:",
        RULES,
    ),
    (
        "the pointer is written before the table",
        "engine/removed_table.py",
        "        number, fresh = known.number, list[Segment]()\n",
        (
            "        number, fresh = known.number, list[Segment]()\n"
            "        self.folder.mkdir(parents=True, exist_ok=True)\n"
            "        early = _Pointer(known.segments, number, tuple(missing))\n"
            "        write_durably(self._file, early.to_json())\n"
        ),
        TABLE,
    ),
    (
        "attempts are marked as folded before the pointer lists them",
        "engine/removed_table.py",
        '        on_step("removed items written")\n',
        '        self.ledger.mark_folded(missing)\n        on_step("removed items written")\n',
        TABLE,
    ),
    (
        "a delete marker counts as freed",
        "targets/s3/actions/deleter.py",
        "        return self.versioning is Versioning.ENABLED\n",
        "        return False\n",
        FREED,
    ),
    (
        "a plan counts what a delete marker hides as freed",
        "targets/s3/model.py",
        "    if versioning is Versioning.DISABLED:\n",
        "    if True:\n",
        FREED,
    ),
    (
        "another version of the key is held in place of the restored one",
        "targets/s3/bin.py",
        'f.try_element_at("_holds", name) for name in (f.col("version_id"), f.lit(_ANY))',
        'f.try_element_at("_holds", name) for name in (f.lit(_ANY), f.lit(_ANY))',
        ON_SPARK,
    ),
    (
        "missing outcomes are no outcomes",
        "engine/removed_table.py",
        "        if self._is_missing(one):\n",
        "        if False:\n",
        TABLE,
    ),
)
