"""
The work of the children that plan or apply on a lake and are killed on the way (`tests.services.doomed`).

The moment to die is the name of a durable step, or `unlink:N`: when Spark's workers have deleted N files.
With `fine`, a child also tells of every single thing that it made durable, and can die there too.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from tests.services.doomed import Moments, session
from tests.services.lake import open_lake

from ebbtide.engine import actor
from ebbtide.engine import plan as planning
from ebbtide.engine.tables.contracts import Contract
from ebbtide.state.database import Database
from ebbtide.storage.local import LocalStore
from ebbtide.targets.repository import memory

DOOM: dict[str, Any] = {}
"""The driver's process, how many files its workers may delete, and where they count them."""


class Doomed(actor._Deleter):
    """Deletes on a worker, and after some files kills first the driver, then itself."""

    def _ask_store(self, requests):
        """Delete, up to the deadly one."""
        unlink = os.unlink

        def deadly(path) -> None:
            unlink(path)
            counted = os.open(DOOM["count"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(counted, b".")
            if os.fstat(counted).st_size >= DOOM["unlinks"]:
                with suppress(ProcessLookupError):  # the other worker was faster
                    os.kill(DOOM["driver"], signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(counted)

        os.unlink = deadly
        try:
            return super()._ask_store(requests)
        finally:
            os.unlink = unlink


def watch_everything(moments: Moments) -> None:
    """Count every durable write and every removal of this process as a moment."""
    _after(Contract, "write", lambda table, *_: moments.again(f"table {table.name}"))
    _after(LocalStore, "write", lambda *_: moments.again("object"))
    _after(shutil, "rmtree", lambda *_: moments.again("removal"))
    _after(shutil, "copytree", lambda *_: moments.again("copy"))
    _after(planning, "write_durably", lambda *_: moments.again("manifest"))
    _after(memory, "write_durably", lambda *_: moments.again("memory"))
    _after(memory, "remove_unused", lambda *_: moments.again("unused ranges"))
    _after_block(Database, "writing", lambda database: moments.again(database.schema.owner))


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    plain = getattr(owner, name)

    def watched(*arguments, **options):
        result = plain(*arguments, **options)
        then(*arguments)
        return result

    setattr(owner, name, watched)


def _after_block(owner: Any, name: str, then: Callable[[Any], None]) -> None:
    plain = getattr(owner, name)

    @contextmanager
    def watched(self) -> Iterator[Any]:
        with plain(self) as value:
            yield value
        then(self)

    setattr(owner, name, watched)


def work(order: dict[str, Any], told: int) -> None:
    """Do the job, up to the moment."""
    moment = order["moment"]
    moments = Moments(told, lambda name: name == moment)
    if moment.startswith("unlink:"):
        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        count = f"{order['folder']}/unlinked-{os.getpid()}"
        DOOM.update(driver=os.getpid(), unlinks=int(moment.removeprefix("unlink:")), count=count)
        actor._Deleter = Doomed
    lake = open_lake(session(order), Path(order["folder"]))
    lake.day(order["day"])
    if order["fine"]:
        watch_everything(moments)
    if order["kind"] == "plan":
        lake.plan(batch_size=order["batch_size"], on_step=moments.step)
    else:
        lake.apply(lake.folder_of(order["run_id"]).read_manifest(), on_step=moments.step)
