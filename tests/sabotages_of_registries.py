"""Ways to break what is done to registries: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

UNIT = ("tests/unit/registry_purge", "tests/unit/registry_inventory", "tests/unit/registry")
ORACLE = ("tests/property/test_registry_equals_oracle.py",)
WHOLE = ("tests/integration/test_registry_changes.py",)
WANTED = ("tests/property/test_wanted_equals_model.py",)
RECORDS = ("tests/contract/records",)
SCANS = ("tests/property/test_both_scans_find_the_same.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "an image goes without being in the bin",
        "targets/oci/purge/actor.py",
        "entry = set_aside(self.registry, self.make_entry(items))",
        "entry = self.make_entry(items)",
        UNIT,
    ),
    (
        "a tag is not read again before it goes",
        "targets/oci/purge/actor.py",
        "        if now == item.digest:\n",
        "        if now:\n",
        UNIT,
    ),
    (
        "what must stay keeps only its own row",
        "targets/oci/purge/actor.py",
        "kept = next((item.kept for item in group if item.kept is not None), None)",
        "kept = None",
        UNIT,
    ),
    (
        "a running scan is never too old",
        "targets/oci/purge/policy.py",
        "        if doubt:\n",
        "        if False:\n",
        UNIT,
    ),
    (
        "a scan of one repository dates what it finds by itself",
        "targets/oci/inventory/scan.py",
        "times = {} if scope.whole else dict(scanned)",
        "times = {} if scope.whole else scanned",
        UNIT,
    ),
    (
        "a pod list that names nothing is believed",
        "targets/oci/running.py",
        "if not found and not failed and lists == [_KUBERNETES]:",
        "if False:",
        UNIT,
    ),
    (
        "a file of running images is never old",
        "targets/oci/running.py",
        "replace(found, scanned_at=clock() - age)",
        "found",
        UNIT,
    ),
    (
        "a pinned manifest loses its names",
        "targets/oci/oracle.py",
        "terms if terms is not None and terms.copied and terms.pinned else None",
        "None",
        UNIT,
    ),
    (
        "a registry is not judged again before a wave",
        "targets/oci/purge/collector.py",
        ".where(differs)",
        ".where(f.lit(False))",
        WHOLE,
    ),
    (
        "what people said of tags does not count",
        "targets/oci/purge/marks.py",
        'counts = f.coalesce(f.col("marked") & (stays | pinned) & _says_something(), f.lit(False))',
        "counts = f.lit(False)",
        WHOLE,
    ),
    (
        "who deletes one image starts the purge of all",
        "targets/oci/purge/plan.py",
        "verdicts = evaluation.only_requested(verdicts)",
        "verdicts = verdicts.where(f.lit(True))",
        WHOLE,
    ),
    (
        "a manifest stays behind its only tag",
        "targets/oci/purge/policy.py",
        'f.bool_and(asked).alias("all")',
        'f.lit(False).alias("all")',
        WANTED,
    ),
    (
        "a manifest goes with one of its tags",
        "targets/oci/purge/policy.py",
        'f.bool_and(asked).alias("all")',
        'f.bool_or(asked).alias("all")',
        WANTED,
    ),
    (
        "what is found running is not renewed",
        "targets/oci/purge/marks.py",
        "        if after != before:\n",
        "        if False:\n",
        WHOLE,
    ),
    (
        "everybody may do everything",
        "targets/oci/records/base.py",
        "    _check(held, role, by, what)\n",
        "    assert held is not None\n",
        RECORDS,
    ),
    (
        "a list of tags that was cut short is believed where images are few",
        "targets/oci/inventory/driver_scan.py",
        'left_out = next((_tag_name(row) for row in found if not row["listed"]), None)',
        "left_out = None",
        SCANS,
    ),
    (
        "what nothing leads to any more is forgotten where images are few",
        "targets/oci/inventory/driver_scan.py",
        "        search.ask_for_the_rest()\n",
        "",
        SCANS,
    ),
    (
        "a tag without its manifest is no trouble",
        "targets/oci/inventory/scan.py",
        "        check_manifests(found.lost)\n",
        "",
        SCANS,
    ),
    (
        "the push of something else dates a tag where images are few",
        "targets/oci/inventory/driver_scan.py",
        '"pushed": at if digest == row["digest"] else None',
        '"pushed": at',
        SCANS,
    ),
    (
        "the driver holds whatever there is",
        "targets/oci/inventory/driver_scan.py",
        "        if count > self.limits.few:\n",
        "        if count < 0:\n",
        UNIT,
    ),
    (
        "a blob is counted for what goes",
        "targets/oci/evaluation/verdicts.py",
        "f.when(decision == ImageDecision.RECYCLE, 1).when(decision == ImageDecision.DELETE, 2).otherwise(0)",
        "f.lit(0)",
        ORACLE,
    ),
    (
        "Spark lets a pinned manifest lose its names",
        "targets/oci/evaluation/expiry.py",
        "overruled = f.coalesce(pin.isNotNull() & first.isNotNull() & lasts_longer, f.lit(False))",
        "overruled = f.lit(False)",
        ORACLE,
    ),
    (
        "Spark takes dates of what a tag named before",
        "targets/oci/evaluation/expiry.py",
        "spent = f.coalesce(expires < start, f.lit(False))",
        "spent = f.lit(False)",
        ORACLE,
    ),
    (
        "Spark forgets images that run by a digest alone",
        "targets/oci/evaluation/holds.py",
        'f.col("running_path").isNull() if column == "digest" else f.lit(False)',
        "f.lit(False)",
        ORACLE,
    ),
)
