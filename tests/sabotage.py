# ruff: noqa: T201 (it reports to whoever started it)
"""
Break Ebbtide on purpose, one way at a time, and see that the tests notice.

    python -m tests.sabotage [NAME ...]

Each sabotage is made in a scratch copy of the working tree; then its tests run there until one fails.
The run fails if any sabotage survives: that is a missing test. So it does if a text is no longer in the code,
or if a test ran out of time: run that sabotage again by its name.

The test that caught a sabotage last time runs first; sabotage_catches.json has it, and every run updates it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.sabotages_of_adoption import SABOTAGES as OF_ADOPTION
from tests.sabotages_of_answers import SABOTAGES as OF_ANSWERS
from tests.sabotages_of_bins import SABOTAGES as OF_BINS
from tests.sabotages_of_clocks import SABOTAGES as OF_CLOCKS
from tests.sabotages_of_counted_tables import SABOTAGES as OF_COUNTED_TABLES
from tests.sabotages_of_databases import SABOTAGES as OF_DATABASES
from tests.sabotages_of_identity import SABOTAGES as OF_IDENTITY
from tests.sabotages_of_image_purges import SABOTAGES as OF_IMAGE_PURGES
from tests.sabotages_of_lakes import SABOTAGES as OF_LAKES
from tests.sabotages_of_policies import SABOTAGES as OF_POLICIES
from tests.sabotages_of_reaper import SABOTAGES as OF_REAPER
from tests.sabotages_of_registries import SABOTAGES as OF_REGISTRIES
from tests.sabotages_of_registry_identity import SABOTAGES as OF_REGISTRY_IDENTITY
from tests.sabotages_of_removed_items import SABOTAGES as OF_REMOVED_ITEMS
from tests.sabotages_of_restored_state import SABOTAGES as OF_RESTORED_STATE
from tests.sabotages_of_s3_rules import SABOTAGES as OF_S3_RULES
from tests.sabotages_of_usability import SABOTAGES as OF_USABILITY

ROOT = Path(__file__).parents[1]
PACKAGE = "src/ebbtide"
CONTRACT = "tests/contract/targets/test_target_contract.py"
FAST = (
    "tests/property/test_pipeline_equals_oracle.py",
    "tests/unit",
    "tests/property/test_incremental_equals_full.py",
    "tests/integration/test_plan_and_apply.py",
    "tests/integration/test_reverification.py",
    "tests/integration/test_broken_metadata.py",
    "tests/integration/test_memory.py",
    "tests/integration/test_stale_plans.py",
    "tests/integration/test_altered_plans.py",
    "tests/integration/test_failures.py",
    "tests/property/test_collectors_equal_oracle.py",
    "tests/integration/test_uncommitted.py",
    CONTRACT,
    "tests/incidents",
)
BUCKET = (
    "tests/unit/bucket",
    "tests/property/test_bucket_equals_oracle.py",
    "tests/integration/test_bucket_order.py",
    "tests/integration/test_looking_again.py",
    "tests/integration/test_bucket_actions.py",
    "tests/contract/store/test_s3_versions.py",
    "tests/integration/test_bucket_job.py",
    "tests/integration/test_bucket_trouble.py",
    CONTRACT,
)
"""What runs for sabotages of what is done to buckets, which no test of a lake would notice."""
CATCHES = ROOT / "tests" / "sabotage_catches.json"
_NO_SUCH_TEST = 4
_LATE = "from pytest-timeout"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Sabotage:
    """One way to break Ebbtide: a text of a module, and what to put in its place."""

    name: str
    module: str
    good: str
    bad: str
    tests: tuple[str, ...] = FAST

    def make(self, package: Path) -> None:
        """Break a copy of the package."""
        module = package / self.module
        text = module.read_text(encoding="utf-8")
        if text.count(self.good) != 1:
            sys.exit(f"sabotage {self.name!r}: its text is not in {self.module} exactly once")
        module.write_text(text.replace(self.good, self.bad), encoding="utf-8")


SABOTAGES = (
    *(Sabotage(*one) for one in (*OF_USABILITY, *OF_CLOCKS, *OF_REMOVED_ITEMS)),
    *(Sabotage(*one) for one in (*OF_RESTORED_STATE, *OF_S3_RULES, *OF_DATABASES)),
    Sabotage(
        "forget staging", "targets/repository/world.py", "for staged in world.staged:", "for staged in ():"
    ),
    Sabotage(
        "forget tags",
        "targets/repository/referrers.py",
        "heads += [(head, ReferrerKind.TAG, name) for name, head in tags.items()]",
        "heads += []",
    ),
    Sabotage(
        "dangling commits hold nothing",
        "targets/repository/referrers.py",
        "or (\n            Referrer(ReferrerKind.DANGLING, commit_id, dangling),\n        )",
        "or ()",
    ),
    Sabotage(
        "due a moment too late",
        "engine/verdicts.py",
        "ends <= moment",
        "ends < moment",
    ),
    Sabotage(
        "due a day too early",
        "targets/repository/segments.py",
        "midnights = -(-micros // MICROSECONDS_A_DAY)",
        "midnights = micros // MICROSECONDS_A_DAY",
    ),
    Sabotage(
        "ignore deduplications",
        "targets/repository/address_verdicts.py",
        '        (found.has_keeper, found.of_keeper("why"), kept_by),\n',
        "",
    ),
    Sabotage(
        "the shortest-lived branch wins",
        "targets/repository/segments.py",
        "longest = max(days",
        "longest = min(days",
    ),
    Sabotage(
        "the first path to lapse wins",
        "targets/repository/address_verdicts.py",
        '("lapse", "descending")',
        '("lapse", "ascending")',
    ),
    Sabotage(
        "trust an empty live set",
        "targets/lake/catalog/ranges.py",
        "    return _decoded(*_fetched(store, list(places)), metarange_id, RANGES, None)",
        "    try:\n        return _decoded(*_fetched(store, list(places)), metarange_id, RANGES, None)\n"
        "    except MetadataError:\n        return RANGES.empty_table()",
    ),
    Sabotage(
        "trust damaged metadata",
        "targets/lake/catalog/ranges.py",
        "if hashlib.sha256(data).hexdigest() != content_id:",
        "if False:",
    ),
    Sabotage(
        "skip re-verification",
        "targets/repository/collector.py",
        'if self.sequence() == plan.snapshot["sequence"]:',
        "if True:",
    ),
    Sabotage(
        "apply a plan for another policy",
        "targets/repository/collector.py",
        "if current.hash != plan.policy_hash:",
        "if False:",
    ),
    Sabotage(
        "apply an altered plan",
        "engine/apply.py",
        "if digest != manifest.digest or recorded_hash != manifest.plan_hash:",
        "if False:",
    ),
    Sabotage(
        "delete what lies outside",
        "targets/repository/address_verdicts.py",
        '        (pc.match_substring(address, "://"), str(HoldReason.OUTSIDE), address),\n',
        "",
    ),
    Sabotage(
        "take a failed delete for done",
        "engine/apply.py",
        "if not applied.unfinished:",
        "if True:",
    ),
    Sabotage(
        "the breaker never trips",
        "core/breaker.py",
        "if reasons and not override:",
        "if False:",
    ),
    Sabotage(
        "delete what is spelled doubtfully",
        "targets/repository/range_cache.py",
        'doubtful[i] |= not raw[i].as_py().endswith("/" + address[i].as_py())',
        "doubtful[i] = False",
    ),
    Sabotage(
        "a key that is not UTF-8 lapses",
        "targets/repository/range_cache.py",
        "doubtful = escaped.copy()",
        "doubtful = np.zeros(table.num_rows, dtype=bool)",
        ("tests/unit/metadata/test_range_cache.py",),
    ),
    Sabotage(
        "an address that is not UTF-8 is escaped",
        "targets/repository/range_cache.py",
        'addresses = [value.decode() for value in table.column("address").to_pylist()]',
        'addresses = [value.decode(errors="replace") for value in table.column("address").to_pylist()]',
        ("tests/unit/metadata/test_range_cache.py",),
    ),
    Sabotage(
        "a range with fewer entries than stated is believed",
        "targets/repository/range_cache.py",
        "if table.num_rows != info.count:",
        "if table.num_rows > info.count:",
        ("tests/unit/metadata/test_range_cache.py",),
    ),
    Sabotage(
        "an incremental run forgets what went",
        "targets/repository/increments.py",
        "            if not unit.stayed:",
        "            if not unit.stayed and unit.now:",
    ),
    Sabotage(
        "an incremental run ignores how a range is reached",
        "targets/repository/increments.py",
        "return self.now == self.before",
        "return bool(self.now) == bool(self.before)",
    ),
    Sabotage(
        "an incremental run excuses too much",
        "targets/repository/increments.py",
        "            and self.now in (other.now, other.before)\n",
        "",
    ),
    Sabotage(
        "an address outlives its references",
        "targets/repository/address_verdicts.py",
        "references = references.unionByName(affected, allowMissingColumns=True)",
        "pass",
    ),
    Sabotage(
        "plan what is removed",
        "engine/removed_items.py",
        "        if not self.rows:\n",
        "        if True:\n",
    ),
    Sabotage(
        "a plan is not what was counted",
        "engine/plan.py",
        "if (rows, written.bytes) != (due.objects, due.bytes):",
        "if False:",
    ),
    Sabotage(
        "a base stands alone",
        "engine/verdicts.py",
        "if layer is not None and not layer.is_dir():",
        "if False:",
    ),
    Sabotage(
        "standings outlive their rules",
        "targets/repository/memory.py",
        'if known["rules"] != rules_of(policy):',
        "if False:",
    ),
    Sabotage(
        "trust a damaged cache",
        "engine/files.py",
        "return content if hashlib.sha256(content).digest() == seal else None",
        "return content",
    ),
    Sabotage(
        "forget open uploads",
        "targets/repository/uncommitted.py",
        'uploading = f.col("expires") > ripe',
        "uploading = f.lit(False)",
    ),
    Sabotage(
        "no grace",
        "targets/repository/uncommitted.py",
        'f.unix_micros("last_modified") + wait',
        'f.unix_micros("last_modified")',
    ),
    Sabotage(
        "garbage though it is staged",
        "targets/repository/live_objects.py",
        'units = ranges.select("world"',
        'units = ranges.where("folder not like \'%staged\'").select("world"',
    ),
    Sabotage(
        "no preflight",
        "targets/repository/live_objects.py",
        "    if not note_affected(unmet, folder):\n",
        "    if True:\n",
    ),
    Sabotage(
        "a scope without its last partition",
        "targets/repository/live_objects.py",
        "pc.less_equal(",
        "pc.less(",
    ),
    Sabotage(
        "a sweep without its last partition",
        "targets/repository/sweeps.py",
        "return last is None or partition <= last",
        "return last is None or partition < last",
    ),
    Sabotage(
        "settle too early",
        "targets/repository/sweeps.py",
        "open_since = listed_at - layout.partition_life - uploads",
        "open_since = listed_at - layout.partition_life",
    ),
    Sabotage(
        "settle what waits",
        "targets/repository/sweeps.py",
        "*([waiting] if waiting else [])",
        "*[]",
    ),
    Sabotage(
        "settle what was left alone",
        "targets/repository/uncommitted.py",
        "if outcomes.get(Outcome.CHANGED):",
        "if False:",
    ),
    Sabotage(
        "an earlier run has the last word",
        "targets/repository/sweeps.py",
        "if known is not None and known.run_id >= state.run_id:",
        "if False:",
    ),
    Sabotage(
        "trust an altered state",
        "targets/repository/sweeps.py",
        "if seal != _seal(plain):",
        "if False:",
    ),
    Sabotage(
        "trust a catalog that forgot commits",
        "targets/repository/uncommitted.py",
        "and sweep.newest_commit not in snapshot.commits:",
        "and False:",
    ),
    Sabotage(
        "garbage is not verified again",
        "targets/repository/collector.py",
        'now.join(planned.select(*_SAME_RANGE).distinct(), _SAME_RANGE, "left_anti")\n    return references',
        'now.where("false")\n    return references',
    ),
    Sabotage(
        "retention forgets tags",
        "targets/repository/terms.py",
        "if rules.tags_protect:",
        "if False:",
    ),
    Sabotage(
        "retention forgets heads",
        "targets/repository/terms.py",
        'yield head, Term(NEVER, f"at the head of branch {name}", HoldReason.HEAD)',
        "yield from ()",
    ),
    Sabotage(
        "retention ignores who else keeps it",
        "targets/repository/retention.py",
        'read_kept(candidates, files).unionByName(others), at_heads, on=("world", "hash")',
        'read_kept(candidates, files), at_heads, on=("world", "hash")',
    ),
    Sabotage(
        "link past the gate",
        "targets/lake/catalog/uploads.py",
        "        with self._referring(repo) as writing:\n            # Checked again under the lock",
        "        with self._writing(repo) as writing:\n            # Checked again under the lock",
    ),
    Sabotage(
        "link what is gone",
        "targets/lake/catalog/uploads.py",
        "            self._check_uploaded(found, key, address, size)\n            entry",
        "            entry",
    ),
    Sabotage(
        "delete a version that came to be current",
        "targets/s3/actions/recheck.py",
        "top = item.latest or item.action in {Action.EXPIRE, Action.REMOVE_DELETE_MARKER}",
        "top = row.is_latest",
        BUCKET,
    ),
    Sabotage(
        "a key that has its marker is not done",
        "targets/s3/actions/recheck.py",
        "(not found or found[0].is_delete_marker):",
        "not found:",
        BUCKET,
    ),
    Sabotage(
        "noncurrent since it was written",
        "targets/s3/evaluation/version_order.py",
        '.otherwise(f.col("_successor"))',
        '.otherwise(f.col("last_modified"))',
        BUCKET,
    ),
    Sabotage(
        "the current version counts as a newer one",
        "targets/s3/evaluation/version_order.py",
        'f.col("_place") - 2',
        'f.col("_place") - 1',
        BUCKET,
    ),
    Sabotage(
        "two versions of one moment have an order",
        "targets/s3/evaluation/version_order.py",
        "lost = contradicted | orderless | siblings_timeless | twin",
        "lost = contradicted | orderless | siblings_timeless",
        BUCKET,
    ),
    Sabotage(
        "a lock keeps nothing",
        "targets/s3/evaluation/verdicts.py",
        'locked = f.unix_micros("retain_until") > now',
        "locked = f.lit(False)",
        BUCKET,
    ),
    Sabotage(
        "a look at the first page is enough",
        "targets/s3/actions/recheck.py",
        "        if not page.truncated:\n            self._learn(wide=False)",
        "        if True:\n            self._learn(wide=False)",
        BUCKET,
    ),
    Sabotage(
        "a listing ends with its first page",
        "storage/s3_versions.py",
        'truncated=root.findtext(f"{space}IsTruncated") == "true"',
        "truncated=False",
        BUCKET,
    ),
    Sabotage(
        "delete whatever the content is now",
        "targets/s3/actions/requests.py",
        "self._client.delete_object(**asked, IfMatch=f'\"{etag}\"')",
        "self._client.delete_object(**asked)",
        BUCKET,
    ),
    Sabotage(
        "what was in a bucket that vanished is gone",
        "storage/s3_client.py",
        'ABSENT = frozenset({"NoSuchKey",',
        'ABSENT = frozenset({"NoSuchBucket", "NoSuchKey",',
        BUCKET,
    ),
    Sabotage(
        "a run that broke off forgets what it deleted",
        "engine/apply.py",
        "if isinstance(broken, StoreError | SafetyStop):",
        "if False:",
        BUCKET,
    ),
    *(Sabotage(*one) for one in OF_ANSWERS),
    *(Sabotage(*one) for one in OF_COUNTED_TABLES),
    *(Sabotage(*one) for one in (*OF_REGISTRIES, *OF_REGISTRY_IDENTITY, *OF_ADOPTION, *OF_BINS, *OF_REAPER)),
    *(Sabotage(*one) for one in OF_IMAGE_PURGES),
    *(Sabotage(*one) for one in (*OF_IDENTITY, *OF_LAKES, *OF_POLICIES)),
)


def main() -> None:
    """Try every sabotage, or those that are named, and say which test caught each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    if unknown := set(names) - {one.name for one in SABOTAGES}:
        parser.error(f"there is no sabotage {', '.join(map(repr, sorted(unknown)))}")
    chosen = [s for s in (None, *SABOTAGES) if not names or (s and s.name in names)]
    survivors, catches = [], _catches()
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2 + 1)) as pool:
        for sabotage, caught in zip(chosen, pool.map(caught_by, chosen), strict=True):
            if sabotage is None:
                print(
                    f"{'FAILED  ' if caught else 'passed  '}  no sabotage at all: {caught or '-'}", flush=True
                )
                survivors += ["no sabotage"] if caught else []
                continue
            print(f"{'caught  ' if caught else 'SURVIVED'}  {sabotage.name}: {caught or '-'}", flush=True)
            survivors += [] if caught else [sabotage.name]
            if caught:
                known = {one.name for one in SABOTAGES}
                catches = {name: test for name, test in catches.items() if name in known}
                catches[sabotage.name] = caught
                CATCHES.write_text(json.dumps(catches, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    if survivors:
        sys.exit(f"not as it must be: {', '.join(survivors)}")


def caught_by(sabotage: Sabotage | None) -> str:
    """Run the tests on a copy, sabotaged or as it is, and name the first that fails, or nothing."""
    with tempfile.TemporaryDirectory(prefix="ebbtide-sabotage-") as place:
        copy = Path(place) / "copy"
        for part in ("src", "tests", "docs", "README.md", "pyproject.toml"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / part)
        if sabotage:
            sabotage.make(copy / PACKAGE)
            if (last := _catches().get(sabotage.name)) and (caught := _first_failure(copy, (last,))):
                return caught
        return _first_failure(copy, sabotage.tests if sabotage else (*FAST, *BUCKET))


def _catches() -> dict[str, str]:
    """Return the test that caught each sabotage last time."""
    return dict(json.loads(CATCHES.read_text(encoding="utf-8"))) if CATCHES.is_file() else {}


def _first_failure(copy: Path, tests: tuple[str, ...]) -> str:
    """Run pytest in a copy until one test fails; a run that cannot even begin catches nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    # In a sabotaged copy the text is gone by design, so a test that looks for it would catch everything.
    command += ["--deselect", "tests/unit/test_sabotage.py"]
    ended = subprocess.run(
        [*command, *tests],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = _FAILED.search(ended.stdout)
    if found and _LATE in ended.stdout:
        # On a busy machine a test fails that says nothing of the sabotage: so nothing is proven.
        print(f"out of time: {found.group(1)}", flush=True)
        return ""
    if ended.returncode == _NO_SUCH_TEST and len(tests) == 1:
        return ""  # the test was renamed since; all tests follow
    if ended.returncode not in (0, 1):
        sys.exit(f"the tests did not run: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return found.group(1) if found else ""


if __name__ == "__main__":
    main()
