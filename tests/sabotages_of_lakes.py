"""Ways to break what lakes rest on: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

NESTED = ("tests/contract/store/test_nested_owner.py",)
OWNERS = ("tests/incidents/test_two_owners.py",)
PAST_RUNS = ("tests/unit/lake/test_past_runs.py",)
TABLE = ("tests/unit/engine/test_removed_items.py",)
RESTORED = ("tests/incidents/test_restored_catalog.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "the search for nested lakes ends early and says none",
        "storage/namespace.py",
        "        if listed > MOST_KEYS:\n",
        "        if listed > MOST_KEYS:\n            return\n        if False:\n",
        NESTED,
    ),
    (
        "a folder is searched for nested lakes only in part",
        "storage/namespace.py",
        "    while waiting:\n",
        "    for _ in range(1000):\n        if not waiting:\n            return\n",
        NESTED,
    ),
    (
        "a failed search for nested lakes found none",
        "storage/namespace.py",
        "        raise failed.with_reason(",
        "        return None\n        raise failed.with_reason(",
        NESTED,
    ),
    (
        "a failed look for an enclosing lake found none",
        "storage/namespace.py",
        "        except Denied:",
        "        except StoreError:",
        NESTED,
    ),
    (
        "a namespace that holds another catalog's lake is free",
        "targets/lake/catalog/ownership.py",
        "        if inside is not None:",
        "        if False:",
        OWNERS,
    ),
    (
        "a folder in place of the owner marker is bad input",
        "storage/namespace.py",
        "    except NameTaken:\n",
        "    except ZeroDivisionError:\n",
        OWNERS,
    ),
    (
        "a lookup misses what is folded meanwhile",
        "engine/removed_table.py",
        "                if self._pointer() == pointer:",
        "                if True:",
        TABLE,
    ),
    (
        "a listing does not know the runs that just ended",
        "engine/removed_table.py",
        "                found = gone_after(found, table)",
        "                pass",
        PAST_RUNS,
    ),
    (
        "restored items stay gone in listings",
        "engine/removed_items.py",
        "np.union1d(np.setdiff1d(gone, back), taken)",
        "np.union1d(gone, taken)",
        PAST_RUNS,
    ),
    (
        "a damaged segment of removed items has no rows",
        "engine/removed_items.py",
        "    except (pa.ArrowException, OSError) as broken:\n",
        "    except (pa.ArrowException, OSError) as broken:\n        return SCHEMA.empty_table()\n",
        TABLE,
    ),
    (
        "a new tag leaves no trace in the namespace",
        "targets/lake/catalog/ownership.py",
        "            self._publish(writing.repository)\n",
        "            pass\n",
        RESTORED,
    ),
    (
        "a new tag wipes out the trace of a lost one",
        "targets/lake/catalog/lost_history.py",
        "if record is not None and not _has_mark(connection, repository, record.mark):",
        "if False:",
        RESTORED,
    ),
    (
        "a trace forgets what the last plan has read",
        "targets/lake/catalog/lost_history.py",
        "tips = record.tips if record else ()",
        "tips = ()",
        RESTORED,
    ),
    (
        "the oldest mark is published",
        "targets/lake/catalog/lost_history.py",
        "connection.execute(mine.order_by(table.c.made.desc()).limit(1)).scalar_one()",
        "connection.execute(mine.order_by(table.c.made).limit(1)).scalar_one()",
        RESTORED,
    ),
    (
        "a run deletes metadata that a plan names",
        "targets/repository/collector.py",
        "return store_deleter(store, attempt, not_below=METADATA)",
        'return store_deleter(store, attempt, not_below="")',
        ("tests/unit/lifecycle/test_metadata_stays.py",),
    ),
    (
        "a run moves metadata that a plan names",
        "targets/repository/collector.py",
        "items_of(contents.root, label.folder), METADATA)",
        'items_of(contents.root, label.folder), "")',
        ("tests/unit/lifecycle/test_metadata_stays.py",),
    ),
)
