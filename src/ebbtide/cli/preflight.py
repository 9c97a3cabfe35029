"""What is checked before Spark starts, so that a command that cannot succeed is refused at once."""

from __future__ import annotations

from ebbtide.cli.state import State
from ebbtide.engine.collector import Collector
from ebbtide.engine.newest_run import check_newest_run
from ebbtide.state.locks import target_lock


def check_ready(state: State, collector: Collector) -> None:
    """Refuse a target whose store or registry does not answer, or that another run is at work on."""
    collector.check_ready()
    check_free(state, collector.identity.uid)


def check_free(state: State, target_uid: str) -> None:
    """Take the target's lock and give it back: the run itself takes it when it begins, and looks again."""
    check_newest_run(state.root, state.ledger)
    with target_lock(state.root, target_uid, "a check"):
        pass
