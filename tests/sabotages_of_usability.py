"""Ways to break the command line: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

INTERRUPTED = ("tests/integration/test_interruption.py",)
PREFLIGHT = ("tests/unit/cli/test_preflight.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a terminated plan stays planning",
        "cli/failure.py",
        "_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)",
        "_SIGNALS = (signal.SIGINT,)",
        INTERRUPTED,
    ),
    (
        "an interrupted plan stays planning",
        "engine/interruption.py",
        "for run_id in abandon_leftovers(root, ledger, target_uid, _INTERRUPTED):",
        "for run_id in ():",
        INTERRUPTED,
    ),
    (
        "a run whose JVM died of the signal is recorded as broken",
        "engine/apply.py",
        "if interruption_behind(broken) is not None:",
        "if False:",
        INTERRUPTED,
    ),
    (
        "a dead port is waited for",
        "storage/network.py",
        "if _reached is None or (host, port) in _reached",
        "if True or (host, port) in _reached",
        PREFLIGHT,
    ),
    (
        "a busy target is found out about when Spark has started",
        "cli/pipeline.py",
        'with target_lock(state.root, target_uid, "a check"):',
        "if True:",
        PREFLIGHT,
    ),
)
