"""Ways to break names, explanations, simulations and the breaker: name, module, a text, another, tests."""

from __future__ import annotations

NAMES = ("tests/unit/store/test_s3_names.py", "tests/contract/store/test_garbled_names.py")
WORLDS = ("tests/property/test_pipeline_equals_oracle.py",)
EXPLAINED = ("tests/property/test_explain_equals_oracle.py",)
BREAKER = ("tests/unit/plan/test_breaker.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "listing without url encoding",
        "storage/s3_listing.py",
        '"Prefix": prefix, "EncodingType": "url"}',
        '"Prefix": prefix, "EncodingType": ""}',
        NAMES,
    ),
    (
        "a garbled name is taken as it is",
        "storage/s3_listing.py",
        "if _REPLACED in text:",
        "if False:",
        NAMES,
    ),
    (
        "names are decoded twice",
        "storage/s3_listing.py",
        'return unquote_to_bytes(text.replace("+", " ")).decode("utf-8")',
        'return unquote_to_bytes(unquote_to_bytes(text.replace("+", " "))).decode("utf-8")',
        NAMES,
    ),
    (
        "a server that says that uploads are encoded is believed",
        "storage/s3_listing.py",
        "if encoded and doubtful:",
        "if False:",
        NAMES,
    ),
    (
        "a garbled key of a report is taken as it is",
        "targets/s3/inventory/report.py",
        "return f.when(doubt, f.raise_error(_garbled(written))).otherwise(key)",
        "return key",
        ("tests/integration/test_bucket_report.py",),
    ),
    (
        "simulate ignores the namespace",
        "targets/repository/simulation.py",
        "namespace=document.namespace,",
        'namespace="s3://elsewhere",',
        WORLDS,
    ),
    (
        "simulate lists what lies outside the namespace",
        "targets/repository/simulation.py",
        "        if is_inside(address):\n            yield",
        "        if True:\n            yield",
        ("tests/property/test_collectors_equal_oracle.py",),
    ),
    (
        "explain reads no staging",
        "targets/repository/ranges.py",
        "for metarange, infos in _listed(world):",
        "for metarange, infos in (one for one in _listed(world) if one[0].folder != '_lakefs/staged'):",
        EXPLAINED,
    ),
    (
        "explain looks at one key alone",
        "targets/repository/explanation.py",
        "        if np.isin(world.files.hashes(one.folder, one.info), wanted).any():",
        "        if np.isin(world.files.hashes(one.folder, one.info)[:1], wanted).any():",
        EXPLAINED,
    ),
    (
        "explain forgets newer noncurrent versions",
        "targets/s3/oracle.py",
        "return position.newer is None or position.newer >= newer",
        "return True",
        ("tests/unit/bucket/test_semantics.py",),
    ),
    (
        "explain does not say what newer noncurrent versions keep",
        "targets/s3/explanation.py",
        "elif position.newer is not None and position.newer < max(asked):",
        "elif False:",
        ("tests/unit/bucket/test_kept_items.py",),
    ),
    (
        "explain forgets what a registry cannot delete",
        "targets/oci/purge/explanation.py",
        "never, alone = undeletable(able), undeletable_tags(able)",
        "never, alone = undeletable({}), undeletable_tags({})",
        ("tests/unit/registry_purge/test_explaining.py",),
    ),
    (
        "the breaker never trips on a changed policy",
        "core/breaker.py",
        "if last is None or last.policy_hash != policy_hash:",
        "if last is None:",
        BREAKER,
    ),
    (
        "all that a known rule takes is routine",
        "core/breaker.py",
        "if self.due <= self.routine:",
        "if self.routine:",
        BREAKER,
    ),
    (
        "what was due before the last run is routine",
        "engine/summary.py",
        "aged & (f.size",
        "f.lit(True) & (f.size",
        ("tests/integration/test_bucket_breaker.py",),
    ),
)
