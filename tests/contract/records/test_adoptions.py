"""Adoptions of registries, on both databases, and those of registries that older versions knew."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, insert, text

from ebbtide.core.errors import Forbidden
from ebbtide.state.runs import Ledger
from ebbtide.state.schema import metadata as ledger_metadata
from ebbtide.state.schema import runs
from ebbtide.targets.oci.model import WHOLE
from ebbtide.targets.oci.policies.policy import Policy
from ebbtide.targets.oci.records.mark_operations import pinning
from ebbtide.targets.oci.records.model import Role, Target
from ebbtide.targets.oci.records.records import ImageRecords

DIGEST = f"sha256:{'a' * 64}"


def test_a_repository_and_a_whole_registry(records, watch):
    """To adopt one repository says nothing of the others; to adopt a registry covers all, also later ones."""
    records.adopt("one", "olga", "team/app")
    records.adopt("all", "olga")
    one, every = records.adoption("one"), records.adoption("all")

    assert (True, False, False) == tuple(map(one.covers, ("team/app", "team", WHOLE)))
    assert (True, True) == tuple(map(every.covers, ("anything", WHOLE)))
    assert (watch.now, "olga") == (every.confirmed[WHOLE].at, every.confirmed[WHOLE].by)
    assert not records.adoption("other").covers("anything")


def test_who_may_not_change_policies_may_not_adopt(records):
    """From the first role on only a purge-policy-writer adopts."""
    records.grant("one", "pia", Role.POLICY_WRITER, "pia")
    with pytest.raises(Forbidden):
        records.adopt("one", "mallory")

    assert not records.adoption("one").covers(WHOLE)


def older(url, watch):
    """Make records as version 1 left them: policies in one registry, a mark, a run, and a mere scan."""
    opened = ImageRecords(url, clock=watch)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS ledger_alembic_version"))
    ledger_metadata.drop_all(engine)
    Ledger(url).close()
    opened.put_policy("policies", Policy("Mine"), "olga")
    opened.change_mark("marks", Target("app", "v1", DIGEST), pinning(), "olga", "pin")
    opened.grant("roles", "pia", Role.POLICY_WRITER, "pia")
    opened.close()
    row = {"target": "t", "now": 0, "made_at": 0, "policy": "{}"}
    rows = [
        {**row, "target_uid": "purged", "collector": "registry", "state": "succeeded"},
        {**row, "target_uid": "planned", "collector": "registry", "state": "planned"},
        {**row, "target_uid": "lake", "collector": "lifecycle", "state": "succeeded"},
    ]
    with engine.begin() as connection:
        connection.execute(insert(runs), rows)
        connection.execute(text("DROP TABLE image_adoptions"))
        connection.execute(text("DROP TABLE image_records_alembic_version"))
        connection.execute(text("UPDATE image_records_about SET version = 1"))
    engine.dispose()


def test_registries_that_an_older_version_purged_are_adopted(url, watch):
    """Policies, marks and runs that succeeded make a registry of an older version an adopted one, once."""
    older(url, watch)
    opened = ImageRecords(url, clock=watch)
    found = {
        uid: opened.adoption(uid).covers(WHOLE)
        for uid in ("policies", "marks", "purged", "roles", "planned", "lake")
    }
    opened.put_policy("later", Policy("Mine"), "olga")
    opened.close()
    again = ImageRecords(url, clock=watch)
    later = again.adoption("later").covers(WHOLE)
    again.close()

    assert {"policies", "marks", "purged"} == {uid for uid, covered in found.items() if covered}
    assert not later
