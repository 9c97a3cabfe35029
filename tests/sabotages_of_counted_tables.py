"""Ways to break counted tables and the check of executors: name, module, a text, its replacement, tests."""

from __future__ import annotations

COUNTS = ("tests/unit/tables/test_row_counts.py",)
RUNS = ("tests/integration/test_counted_runs.py",)
EXECUTORS = ("tests/unit/engine/test_cluster_check.py",)
FAILURES = ("tests/unit/tables/test_failures.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a table does not count its rows",
        "engine/tables/row_counts.py",
        "    if found != written:\n",
        "    if False:\n",
        COUNTS,
    ),
    (
        "the driver counts what it finds and not what was written",
        "engine/tables/counted.py",
        '    record_counts(folder, found["rows"])\n',
        "    from ebbtide.engine.tables.row_counts import adopt_counts\n\n    adopt_counts(folder)\n",
        COUNTS,
    ),
    (
        "a reader does not compare",
        "engine/tables/counted.py",
        "        check_counts(folder)\n",
        "        pass\n",
        COUNTS,
    ),
    (
        "a missing file is no matter",
        "engine/tables/row_counts.py",
        "        if name not in found:\n",
        "        if False:\n",
        COUNTS,
    ),
    (
        "a file that was cut short is no matter",
        "engine/tables/row_counts.py",
        "        if found[name] != count.size:\n",
        "        if False:\n",
        COUNTS,
    ),
    (
        "a file that was added is no matter",
        "engine/tables/row_counts.py",
        "    if extra := sorted(found.keys() - counts.keys()):\n",
        "    if extra := []:\n",
        COUNTS,
    ),
    (
        "a table without a record is read",
        "engine/tables/row_counts.py",
        "    except FileNotFoundError:\n        raise",
        "    except FileNotFoundError:\n        return {}\n        raise",
        COUNTS,
    ),
    (
        "outcomes need no record",
        "state/runs.py",
        "c.run_id == run_id, c.state == _FINISHED)",
        "c.run_id == run_id)",
        RUNS,
    ),
    (
        "plans of an earlier version are applied",
        "engine/apply.py",
        "if not manifest.is_typed and state is RunState.PLANNED:",
        "if False:",
        RUNS,
    ),
    (
        "missing metaranges pass",
        "targets/repository/ranges.py",
        "    if read != handed_out:\n",
        "    if False:\n",
        RUNS,
    ),
    (
        "an executor that finds no affected addresses goes on",
        "targets/repository/affected.py",
        "    if found != noted:\n",
        "    if False:\n",
        ("tests/unit/lifecycle/test_affected.py",),
    ),
    (
        "executors are not asked",
        "engine/cluster_check.py",
        "    check_executors(spark, root)\n",
        "",
        EXECUTORS,
    ),
    (
        "what executors answer is not looked at",
        "engine/cluster_check.py",
        "        answers = _ask(spark, folder)\n",
        "        answers = _ask(spark, folder)[:0]\n",
        EXECUTORS,
    ),
    (
        "a copy of the disk counts as the disk",
        "engine/cluster_check.py",
        'if answer["seen"] != nonce or not _has_proof(answer, folder, nonce):',
        'if answer["seen"] != nonce:',
        EXECUTORS,
    ),
    (
        "any build will do",
        "engine/cluster_check.py",
        'if answer["build"] != own:',
        "if False:",
        EXECUTORS,
    ),
    (
        "a simulated cluster counts as local",
        "engine/spark/session.py",
        'return master == "local" or master.startswith("local[")',
        'return master.startswith("local")',
        EXECUTORS,
    ),
    (
        "executors that join later open any store",
        "storage/store.py",
        "            check_fitness()\n",
        "",
        EXECUTORS,
    ),
    (
        "a namespace that looks empty is opened",
        "storage/store.py",
        "        _check_witness(store, spec.witness)\n",
        "",
        EXECUTORS,
    ),
    (
        "secrets get into the log",
        "engine/spark/failures.py",
        "failed:\\n{without_secrets(text)}\\n",
        "failed:\\n{text}\\n",
        FAILURES,
    ),
)
