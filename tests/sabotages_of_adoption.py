"""Ways to break what a registry's owner is asked first: deletes by hand, running images, adoption."""

from __future__ import annotations

WANTED = ("tests/property/test_wanted_equals_model.py",)
ADOPTION = ("tests/incidents/test_registry_adoption.py",)
NEWEST = ("tests/unit/registry/test_newest.py",)
ORACLE = ("tests/property/test_registry_equals_oracle.py",)
UNMATCHED = ("tests/unit/registry/test_unmatched.py",)
RUNNING = ("tests/incidents/test_registry_running.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "untagged delete reaches other repositories",
        "targets/oci/purge/policy.py",
        "found = [self._is_old(clock) and repositories.matches(repository) for repository, clock in rows]",
        "found = [self._is_old(clock) for repository, clock in rows]",
        WANTED,
    ),
    (
        "untagged age counts from the push",
        "targets/oci/purge/policy.py",
        'f.when(f.col("untagged_since").isNotNull(), f.greatest("untagged_since", pushed))',
        'f.when(f.col("untagged_since").isNotNull(), pushed)',
        WANTED,
    ),
    (
        "any running source is accepted",
        "targets/oci/running_source.py",
        "        context.records.require_granted(context.uid, Role.IMAGE_WRITER, user, what)\n",
        "        assert what\n",
        RUNNING,
    ),
    (
        "a plan is applied with the running images that it was made with",
        "targets/oci/running_source.py",
        "    if standing is None or same_source(standing, planned):\n",
        "    if True:\n",
        RUNNING,
    ),
    (
        "first plan needs no adoption",
        "targets/oci/purge/collector.py",
        "        if records.adoption(uid).covers(repository_of(url)):\n",
        "        if True:\n",
        ADOPTION,
    ),
    (
        "policies are assigned before a registry is adopted",
        "targets/oci/inventory/timestamps.py",
        "        return self.adopted is None or repository in self.adopted\n",
        "        return True\n",
        ("tests/unit/registry_inventory/test_clocks.py",),
    ),
    (
        "unmatched keep is ignored",
        "targets/oci/oracle.py",
        "        return replace(kept, doubt=UNMATCHED, unmatched=True)\n",
        "        return kept\n",
        UNMATCHED,
    ),
    (
        "what goes for want of a rule is not counted",
        "targets/oci/oracle.py",
        "self.unmatched or other.unmatched)",
        "self.unmatched)",
        UNMATCHED,
    ),
    (
        "ties in keep_newest are broken at random",
        "targets/oci/oracle_graph.py",
        "        return later + len(dates) - bisect_right(dates, one.created)\n",
        "        return later + hash(one.node) % len(dates)\n",
        NEWEST,
    ),
    (
        "of tags without a creation date some go",
        "targets/oci/evaluation/holds.py",
        '"newer": f.col("later") + f.when(no_date, 0).otherwise(f.rank().over(by_date) - 1),',
        '"newer": f.col("later") + f.row_number().over(by_date) - 1,',
        ORACLE,
    ),
)
