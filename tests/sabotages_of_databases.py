"""Sabotages of opening and upgrading databases."""

MIGRATIONS = ("tests/contract/database/test_migrations.py",)
QUEUE = ("tests/contract/catalog/test_reclaim.py",)
ADOPTIONS = ("tests/contract/records/test_adoptions.py",)

SABOTAGES = (
    (
        "a database of a newer Ebbtide is opened",
        "state/migration.py",
        "    if is_unknown or (found.number or 0) > schema.head.number:\n",
        "    if False:\n",
        MIGRATIONS,
    ),
    (
        "an upgraded database keeps the number that lets older programs write",
        "state/migration.py",
        "    connection.execute(update(schema.about).values(version=schema.head.number))\n",
        "",
        MIGRATIONS,
    ),
    (
        "what was committed before the migration is not recorded",
        "targets/lake/catalog/migrations/catalog_4.py",
        "        _record_imports(connection)\n",
        "        pass\n",
        QUEUE,
    ),
    (
        "an older Ebbtide goes on writing after the migration",
        "targets/lake/catalog/migrations/catalog_4.py",
        '        op.rename_table("catalog_branches", "catalog_branch_heads")\n',
        '        op.execute("CREATE TABLE catalog_branch_heads AS SELECT * FROM catalog_branches")\n',
        QUEUE,
    ),
    (
        "registries of an earlier version have to be adopted again",
        "targets/oci/records/migrations/records_2.py",
        "        _adopt_known(connection)\n",
        "        pass\n",
        ADOPTIONS,
    ),
    (
        "the upgrade of the ledger loses attempts",
        "state/migrations/ledger_5.py",
        '" SELECT run_id, wave, attempt, state FROM waves"',
        "\" SELECT run_id, wave, attempt, state FROM waves WHERE state = 'counted'\"",
        MIGRATIONS,
    ),
    (
        "an earlier ledger opens an upgraded one",
        "state/schema.py",
        'Revision("ledger_5", 3, ("batch_attempts",))',
        'Revision("ledger_5", 2, ("batch_attempts",))',
        MIGRATIONS,
    ),
)
