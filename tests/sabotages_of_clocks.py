"""Ways to break the clock: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

CLOCKS = ("tests/incidents/test_clocks.py",)
REHEARSAL = ("tests/unit/cli/test_rehearsal.py",)
TUTORIAL = ("tests/docs/test_command_blocks.py::test_all_that_a_rehearsal_leaves_is_marked",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "apply takes the caller's time",
        "cli/state.py",
        "        return system_clock\n",
        "        return lambda: parse_instant(os.environ.get(NOW_VARIABLE) or system_clock().isoformat())\n",
        CLOCKS,
    ),
    (
        "a plan for the future can be applied",
        "engine/apply.py",
        "if manifest.now > now + CLOCK_TOLERANCE:",
        "if False:",
        CLOCKS,
    ),
    (
        "a plan can be applied after the clock went back",
        "engine/apply.py",
        "if manifest.made_at > now + CLOCK_TOLERANCE:",
        "if False:",
        CLOCKS,
    ),
    (
        "a plan is dated by --now",
        "engine/plan.py",
        "            made_at=made_at,\n            now=self.now,",
        "            made_at=self.now,\n            now=self.now,",
        CLOCKS,
    ),
    (
        "a scan is dated by --now",
        "targets/oci/purge/plan.py",
        "        return self.scans.scan(self.policy.policies, folder.scratch)\n",
        (
            "        own = self.scans.context\n"
            '        context = type(own)(**{**vars(own), "clock": lambda: self.now})\n'
            "        scans = RegistryScans(self.scans.spark, context)\n"
            "        return scans.scan(self.policy.policies, folder.scratch)\n"
        ),
        CLOCKS,
    ),
    (
        "a running image is renewed from the time of the plan",
        "targets/oci/purge/plan.py",
        "renewed_marks(found, self.policy.policies, context.clock())",
        "renewed_marks(found, self.policy.policies, running.scanned_at)",
        CLOCKS,
    ),
    (
        "a command ignores EBBTIDE_NOW in silence",
        "cli/state.py",
        "if os.environ.get(NOW_VARIABLE) and not takes_now:",
        "if False:",
        CLOCKS,
    ),
    (
        "a rehearsal root opens any store",
        "storage/network.py",
        "if not is_loopback(host):",
        "if False:",
        REHEARSAL,
    ),
    (
        "executors of a rehearsal open any store",
        "storage/s3_client.py",
        "if found.local_only:",
        "if False:",
        REHEARSAL,
    ),
    (
        "a rehearsal opens any bucket",
        "targets/s3/kind.py",
        'if not workspace.is_rehearsal or not spec.url.startswith("s3://"):',
        "if True:",
        REHEARSAL,
    ),
    (
        "a real root opens the databases of a rehearsal",
        "state/database.py",
        "if found is not rehearsal:",
        "if False:",
        REHEARSAL,
    ),
    (
        "a real root becomes a rehearsal",
        "engine/rehearsal.py",
        "if root.exists() and any(root.iterdir()):",
        "if False:",
        REHEARSAL,
    ),
    (
        "the clock of a rehearsal goes back",
        "engine/rehearsal.py",
        "if by <= timedelta():",
        "if False:",
        REHEARSAL,
    ),
    (
        "a rehearsal looks like the real thing",
        "cli/state.py",
        "mark_output(rehearsal=self.rehearsal is not None)",
        "mark_output(rehearsal=False)",
        REHEARSAL,
    ),
    (
        "what a plan leaves beside the data is dated by --now",
        "targets/repository/collector.py",
        "plan.run_id, plan.made_at, rehearsal",
        "plan.run_id, plan.now, rehearsal",
        TUTORIAL,
    ),
    (
        "a plan of a rehearsal looks like a real one",
        "engine/plan.py",
        "rehearsal=ledger.rehearsal,",
        "rehearsal=False,",
        TUTORIAL,
    ),
)
