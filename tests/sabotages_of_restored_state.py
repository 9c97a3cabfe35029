"""Ways to break the checks of restored state: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

COUNTS = ("tests/unit/tables/test_row_counts.py",)
RESTORED = ("tests/incidents/test_restored_state.py",)
SHOWN = ("tests/integration/test_altered_plans.py::test_an_altered_plan_table_is_refused",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a changed footer is no matter",
        "engine/tables/row_counts.py",
        "        if count.footer is not None and _footer_digest(folder / name) != count.footer:\n",
        "        if False:\n",
        COUNTS,
    ),
    (
        "a plan is shown without a look at the table that would be applied",
        "engine/run_tables.py",
        "    if counted_rows(folder.plan) != manifest.summary.due.objects:\n",
        "    if False:\n",
        SHOWN,
    ),
    (
        "a plan is shown whose table has other items",
        "engine/run_tables.py",
        "    if shown % _MODULUS != _planned(folder) % _MODULUS:\n",
        "    if False:\n",
        SHOWN,
    ),
    (
        "a ledger without the newest run is no matter",
        "engine/newest_run.py",
        "    if ledger.run_mark(mark.run_id) != mark:\n",
        "    if False:\n",
        RESTORED,
    ),
    (
        "a run of the same number is the same run",
        "engine/newest_run.py",
        "    if ledger.run_mark(mark.run_id) != mark:\n",
        "    if ledger.run_mark(mark.run_id) is None:\n",
        RESTORED,
    ),
    (
        "the folder of another run is no matter",
        "engine/newest_run.py",
        "    if highest > (newest.run_id if newest else 0):\n",
        "    if False:\n",
        RESTORED,
    ),
    (
        "a state root that does not know the last plans is no matter",
        "engine/newest_run.py",
        "    if later is not None:\n",
        "    if False:\n",
        RESTORED,
    ),
    (
        "an empty state root is one of an earlier version",
        "engine/newest_run.py",
        "    if last is not None and not run_folder(root, last).path.is_dir():\n",
        "    if False:\n",
        RESTORED,
    ),
    (
        "a run begins without a look at the record",
        "engine/newest_run.py",
        "        _check(root, ledger)\n        run_id = ledger.begin",
        "        run_id = ledger.begin",
        RESTORED,
    ),
    (
        "an older table of removed items is no matter",
        "engine/removed_table.py",
        "pointer.folded is not None and pointer.folded < marked",
        "False",
        RESTORED,
    ),
    (
        "attempts that are folded again win over later ones",
        "engine/removed_table.py",
        "        if not self._is_counted(known):\n",
        "        if False:\n",
        RESTORED,
    ),
    (
        "a plan from before an acceptance is applied",
        "engine/newest_run.py",
        "    if run_id < ledger.acceptance():\n",
        "    if False:\n",
        RESTORED,
    ),
    (
        "a plan that was applied before is applied again",
        "engine/newest_run.py",
        "    if unknown := sorted(set(outcome_names(root, run_id)) - known):\n",
        "    if unknown := []:\n",
        RESTORED,
    ),
    (
        "an applied run is removed as a leftover",
        "engine/interruption.py",
        "        if not outcome_names(root, run_id):\n",
        "        if True:\n",
        RESTORED,
    ),
    (
        "a restore goes by a restored ledger",
        "engine/restore.py",
        "        check_newest_run(self.root, self.ledger)\n",
        "        pass\n",
        ("tests/unit/engine/test_restoring.py",),
    ),
    (
        "a plan goes by a restored ledger",
        "engine/plan.py",
        "        check_newest_run(context.root, context.ledger)\n",
        "",
        RESTORED,
    ),
)
