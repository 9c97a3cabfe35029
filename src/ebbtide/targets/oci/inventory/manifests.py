"""
Manifests on Spark: those that tags stand for, and round by round all that they lead to.

Manifests never change, so one that is known from an earlier scan is not read again. What nothing leads to any
more is asked whether it is still there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ebbtide.engine.spark.failures import own_errors
from ebbtide.targets.oci.inventory.columns import FOUND, FOUND_ARROW, WANTED, WANTED_ARROW
from ebbtide.targets.oci.inventory.engine import KEY, Leads
from ebbtide.targets.oci.inventory.questions import what_it_says, what_refers_to_it, whether_it_is_there
from ebbtide.targets.oci.inventory.steps import Steps


@dataclass(frozen=True)
class _Search:
    """What was found so far."""

    steps: Steps
    leads: Leads
    known: DataFrame
    done: DataFrame
    number: int = 0


def find_manifests(steps: Steps, wanted: DataFrame, known: DataFrame | None, leads: Leads) -> DataFrame:
    """
    Find all manifests from those that are wanted on; rows are as FOUND says, those that are missing too.

    `known` are the images of an earlier scan, if there was one.
    """
    if known is None:
        return _follow(_Search(steps, leads, steps.empty(FOUND), steps.empty(FOUND)), wanted).done
    before = known.select(
        *KEY,
        "media_type",
        "size",
        "children",
        "subject",
        "blobs",
        f.lit(False).alias("missing"),
        f.lit(False).alias("fresh"),
    )
    search = _follow(_Search(steps, leads, before, steps.empty(FOUND)), wanted)
    rest = before.join(search.done, KEY, "left_anti")
    asked = steps.asked(rest.select(*KEY), whether_it_is_there, WANTED_ARROW, WANTED)
    there = steps.written("asking what is still there", "still-there", asked)
    # What is gone is done with: an index that lists it must not bring it back.
    gone = rest.join(there, KEY, "left_anti").withColumn("missing", f.lit(True))
    return _follow(replace(search, done=search.done.unionByName(gone)), there).done


def _follow(search: _Search, wanted: DataFrame) -> _Search:
    """Find what is wanted, then what that leads to, until nothing new comes."""
    steps = search.steps
    while True:
        name = f"{search.number:03d}"
        fresh = wanted.select(*KEY).distinct().join(search.done, KEY, "left_anti")
        wanted = steps.written("looking for manifests", f"wanted-{name}", fresh)
        with own_errors():
            if wanted.isEmpty():
                return replace(search, number=search.number + 1)
        unknown = wanted.join(search.known, KEY, "left_anti")
        read = steps.asked(unknown, what_it_says, FOUND_ARROW, FOUND)
        taken = search.known.join(wanted, KEY, "left_semi")
        found = steps.written("reading manifests", f"found-{name}", taken.unionByName(read))
        search = replace(search, done=search.done.unionByName(found), number=search.number + 1)
        wanted = _led_to(search, found.where("not missing"))


def _led_to(search: _Search, found: DataFrame) -> DataFrame:
    """Give what manifests lead to: children, and what is known or said to refer to them."""
    listed = found if search.leads.odd_children else found.withColumn("children", _manifests_alone())
    children = listed.select("repository", f.explode("children").alias("digest"))
    subjects = found.select("repository", f.col("digest").alias("subject"))
    known = search.known.where("subject is not null").join(subjects, ["repository", "subject"], "left_semi")
    led = children.unionByName(known.select(*KEY))
    if not search.leads.referrers:
        return led
    asked = search.steps.asked(found.select(*KEY), what_refers_to_it, WANTED_ARROW, WANTED)
    return led.unionByName(asked)


def _manifests_alone() -> Column:
    """Give the children that are not among the blobs too."""
    return f.array_except("children", f.transform("blobs", lambda blob: blob["digest"]))
