"""Ways to break what the names of registries, their bins and restores rest on."""

from __future__ import annotations

FOREIGN = ("tests/contract/registry/test_foreign_in_bin.py",)
RESTORES = ("tests/unit/cli/test_image_recycle.py", "tests/unit/records/test_marking.py")
ROLES = ("tests/contract/records/test_roles.py",)
ERRORS = ("tests/unit/engine/test_broken_off.py",)
NAMES = ("tests/unit/registry_client/test_canonical.py",)
ALIASES = ("tests/incidents/test_registry_aliases.py",)
IDENTITY = ("tests/contract/records/test_identity.py",)
MARKER = ("tests/contract/registry/test_marker.py",)
LISTING = ("tests/unit/registry_purge/test_removed.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "a foreign tag in the bin is removed",
        "targets/oci/bin/contents.py",
        "    return is_manifest_tag(tag) and tag == manifest_tag(digest)\n",
        "    return is_manifest_tag(tag)\n",
        FOREIGN,
    ),
    (
        "what a foreign tag of the bin needs is removed",
        "targets/oci/bin/contents.py",
        "            if digest not in foreign.digests:\n",
        "            if True:\n",
        FOREIGN,
    ),
    (
        "a restored image keeps its old date",
        "targets/oci/records/mark_operations.py",
        "    return _counted_again(mark, policy or policies.the(UNTAGGED), now)\n",
        "    return mark\n",
        RESTORES,
    ),
    (
        "a restored image is not assigned its policy again",
        "targets/oci/bin/image_bin.py",
        "            dates = reassigned(self.context, done, current_user())\n",
        "            dates = {}\n",
        RESTORES,
    ),
    (
        "the first grant locks its granter out",
        "targets/oci/records/roles.py",
        "    return [own, wanted] if first and wanted != own else [wanted]\n",
        "    return [wanted]\n",
        ROLES,
    ),
    (
        "a listing shows what is in the bin as present",
        "targets/oci/purge/last_scan.py",
        "        if not later:\n",
        "        if later:\n",
        LISTING,
    ),
    (
        "an error after deletes does not count them",
        "engine/apply.py",
        "        raise broken.with_reason(before) from broken\n",
        "        raise broken\n",
        ERRORS,
    ),
    (
        "spellings of one registry differ",
        "targets/oci/client/address.py",
        "    if name in _LOOPBACKS:\n",
        "    if False:\n",
        NAMES,
    ),
    (
        "the default port makes another registry",
        "targets/oci/client/address.py",
        "if port in (None, default) else",
        "if port is None else",
        NAMES,
    ),
    (
        "an alias is not recognised",
        "targets/oci/purge/identity.py",
        '    return owners[0].uid if owners else ""\n',
        '    return ""\n',
        ALIASES,
    ),
    (
        "an alias that changes something is not recognised",
        "targets/oci/purge/identity.py",
        "            return _alias(context, registry, marker, owners[0], by)\n",
        "            pass\n",
        ALIASES,
    ),
    (
        "a copy of a registry is taken for another name",
        "targets/oci/purge/identity.py",
        "    if same is False:\n",
        "    if False:\n",
        ALIASES,
    ),
    (
        "another registry at a known address is taken for the old one",
        "targets/oci/purge/identity.py",
        "        if known is not None and known.marker:\n            raise",
        "        if False:\n            raise",
        ALIASES,
    ),
    (
        "the marker is emptied with the bin",
        "targets/oci/bin/contents.py",
        "            if own and manifest.digest not in foreign.digests:\n",
        "            if True:\n",
        MARKER,
    ),
    (
        "an unknown registry needs no adoption",
        "targets/oci/records/identity.py",
        "            if adopt or _is_known(connection, name, uid):\n",
        "            if True:\n",
        IDENTITY,
    ),
    (
        "roles that contradict each other are merged",
        "targets/oci/records/identity.py",
        "        if len(set(told.values())) > 1:\n",
        "        if False:\n",
        IDENTITY,
    ),
    (
        "of two marks the laxer wins",
        "targets/oci/records/identity.py",
        "key=lambda mark: _rank(mark, now), reverse=True)",
        "key=lambda mark: _rank(mark, now))",
        IDENTITY,
    ),
)
