"""What lies in the namespace of a deleted repository, and which of it is the repository's own."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import or_

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ebbtide.storage.namespace import MARKER
from ebbtide.storage.store import Store
from ebbtide.targets.lake.catalog.model import DeletedRepository
from ebbtide.targets.lake.catalog.partitions import BRANCHES, repository_path
from ebbtide.targets.lake.catalog.ranges import METADATA
from ebbtide.targets.lake.inventory import are_addresses, inventory
from ebbtide.targets.lake.uncommitted.sweeps import SIDE_BY_SIDE
from ebbtide.targets.lake.witness import witnessed

REPOSITORIES = "repos/"


def list_namespace(spark: SparkSession, store: Store, gone: DeletedRepository) -> DataFrame:
    """List the whole namespace on the executors, each partition of each branch by a task of its own."""
    rows = [(prefix,) for prefix in prefixes(store, gone.uid)]
    found = inventory(
        spark.createDataFrame(rows, "prefix string"), witnessed(store), gone.namespace, merged=True
    )
    # The owner marker is no part of a plan: it goes when nothing else is left.
    return found.where(f.col("key") != MARKER)


def prefixes(store: Store, uid: str) -> list[str]:
    """Name folders and single files that together are the namespace, without any that lies in another."""
    home = repository_path(uid)
    levels = ["", METADATA, REPOSITORIES, home, home + BRANCHES]
    found = [level + name for level in levels for name in store.children(level)]
    branches = [
        name
        for name in found
        if name.endswith("/") and name.startswith(home + BRANCHES) and name != home + BRANCHES
    ]
    opened = {*levels, *branches}
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        inner = pool.map(lambda path: [path + name for name in store.children(path)], branches)
        return [name for name in found if name not in opened] + [name for names in inner for name in names]


def neighbours(store: Store, uid: str) -> list[str]:
    """Name the folders of other repositories in the namespace: another catalog may know them."""
    own = repository_path(uid).removeprefix(REPOSITORIES)
    return [name for name in store.children(REPOSITORIES) if name.endswith("/") and name != own]


def own_folders(store: Store, uid: str) -> tuple[str, ...]:
    """
    Name the folders whose content is the repository's own: its data, and its metadata if it is alone.

    Metadata is named by its content and does not say whose it is. If there are other repositories in the
    namespace, another catalog may know them, and then it may be theirs.
    """
    return (repository_path(uid),) if neighbours(store, uid) else (repository_path(uid), METADATA)


def is_own(folders: Sequence[str]) -> Column:
    """Tell of a listed key whether the repository wrote it: it lies there, and is spelt as its address."""
    key = f.col("key")
    spelt = f.coalesce(key == f.col("address"), f.lit(False)) & ~key.contains("://")
    return spelt & reduce(or_, (key.startswith(folder) for folder in folders))


def has_own(store: Store, gone: DeletedRepository) -> bool:
    """Look whether anything of the repository's own is left; the first object found is enough."""
    return any(
        pc.any(
            pc.and_(
                are_addresses(batch.column("key"), gone.namespace),
                pc.not_equal(batch.column("key"), MARKER),
            ),
            min_count=0,
        ).as_py()
        for folder in own_folders(store, gone.uid)
        for batch in store.list(folder)
    )
