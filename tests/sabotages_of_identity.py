"""Ways to break what protects a namespace: name, module, a text of it, what takes its place, tests."""

from __future__ import annotations

OWNERS = ("tests/incidents/test_two_owners.py",)
RESTORED = ("tests/incidents/test_restored_catalog.py",)
LAKES = ("tests/incidents/test_rules_and_lakes.py",)
UPLOADS = ("tests/unit/cli/test_lake_upload.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "no look at the namespace's owner",
        "targets/lake/catalog/ownership.py",
        "if marked.identity == self.owner(repository).identity:",
        "if True:",
        OWNERS,
    ),
    (
        "a damaged owner marker counts as none",
        "storage/namespace.py",
        "    if not readable:\n        raise ForeignNamespace(",
        "    if not readable:\n        return None\n        raise ForeignNamespace(",
        (*OWNERS, "tests/contract/store/test_owner_marker.py"),
    ),
    (
        "a creation overwrites the owner marker",
        "storage/namespace.py",
        "    store.create(MARKER, owner.to_json())",
        "    store.write(MARKER, owner.to_json())",
        ("tests/contract/store/test_owner_marker.py",),
    ),
    (
        "a namespace inside another catalog's lake is free",
        "targets/lake/catalog/ownership.py",
        "        if around is not None:",
        "        if False:",
        OWNERS,
    ),
    (
        "symlinked namespaces count as different",
        "storage/namespace.py",
        'os.path.realpath(f"/{place.path}")',
        'f"/{place.path}"',
        OWNERS,
    ),
    (
        "an unmarked namespace is taken without a look",
        "targets/lake/catalog/ownership.py",
        "            self._check_unmarked(found, store)",
        "            pass",
        OWNERS,
    ),
    (
        "a deleted repository without a marker is collected",
        "targets/lake/catalog/ownership.py",
        "if any(store.children(METADATA)) or any(store.children(repository_path(uid))):",
        "if False:",
        OWNERS,
    ),
    (
        "unknown metaranges are ignored",
        "targets/lake/catalog/lost_history.py",
        "        if unknown:\n            raise _unknown(",
        "        if False:\n            raise _unknown(",
        RESTORED,
    ),
    (
        "metaranges are not looked for among ranges",
        "targets/lake/catalog/lost_history.py",
        "among = set() if separated else _listed(store, COMMITTED)",
        "among = set()",
        RESTORED,
    ),
    (
        "an import that never landed counts as known for ever",
        "targets/lake/catalog/lost_history.py",
        "(_notes.c.kind != str(Provenance.IMPORT)) | (_notes.c.noted > to_micros(now - IMPORT_LIFE))",
        "_notes.c.noted >= 0",
        RESTORED,
    ),
    (
        "a repeated import leaves no mark",
        "targets/lake/catalog/imports.py",
        "explained = lost_history.is_explained(connection, repository.uid, metarange_id)",
        "explained = False",
        RESTORED,
    ),
    (
        "an import lands after a refusal of the same content",
        "targets/lake/catalog/imports.py",
        "if lost_history.is_given_up(writing.connection, found.uid, commit.metarange_id):",
        "if False:",
        RESTORED,
    ),
    (
        "a refused import is in doubt for ever",
        "targets/lake/catalog/imports.py",
        "            self._note_refusal(found, commit.metarange_id)\n",
        "",
        RESTORED,
    ),
    (
        "plans forget the commits they read",
        "targets/lake/catalog/lost_history.py",
        "        if lost:\n",
        "        if False:\n",
        RESTORED,
    ),
    (
        "a catalog may go back in time",
        "targets/lake/catalog/lost_history.py",
        "if not known:",
        "if False:",
        RESTORED,
    ),
    (
        "recovered commits are unknown to the reaper",
        "targets/lake/catalog/lost_history.py",
        "reclaim_queue.note_import(writing, Imported(metarange_id, before.metarange_id))",
        "pass",
        RESTORED,
    ),
    (
        "rules reach into a lake in the bucket",
        "targets/s3/evaluation/verdicts.py",
        "hold = f.when(ends | moves, f.coalesce(lake, other))",
        "hold = f.when(ends | moves, other)",
        ("tests/property/test_bucket_equals_oracle.py", *LAKES),
    ),
    (
        "markers in a listing are not looked for",
        "targets/s3/planner.py",
        "(self.rules.protected, lakes_in_inventory(self.spec, versions))\n        place",
        "(self.rules.protected)\n        place",
        LAKES,
    ),
    (
        "a rule inside a lake does not see its marker",
        "targets/s3/context.py",
        "merge_protected(known_lakes(spec, lakes or {}), lakes_around_rules(spec, configuration))",
        "known_lakes(spec, lakes or {})",
        LAKES,
    ),
    (
        "upload follows links",
        "cli/lake.py",
        "if entry.is_symlink() and not follow:",
        "if False:",
        UPLOADS,
    ),
    (
        "a link in a lake is a mere failure of the store",
        "core/errors.py",
        'both unsafe."""\n\n    exit_code = 3',
        'both unsafe."""\n\n    exit_code = 1',
        ("tests/contract/store/test_local_folder.py",),
    ),
)
