"""Ways to break what keeps image purges and rehearsals to the registry, the source and the machine meant."""

from __future__ import annotations

IDENTITY = ("tests/contract/records/test_identity.py",)
PAST_PURGES = ("tests/unit/registry_purge/test_past_purges.py",)
RUNNING = ("tests/incidents/test_registry_running.py",)
LEAVING = ("tests/incidents/test_leaving_rehearsals.py",)
REHEARSED = ("tests/incidents/test_rehearsed_registries.py",)
SOURCES = ("tests/contract/records/test_running_sources.py",)

SABOTAGES: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "the configured source of running images replaces the recorded one",
        "targets/oci/records/scans.py",
        "    if before is not None and before.name is not None and before.name != name:\n",
        "    if False:\n",
        RUNNING,
    ),
    (
        "the source of running images is not recorded",
        "targets/oci/purge/running_choice.py",
        "        shop.records.record_source(shop.uid, named_source(shop.running), current_user())\n",
        "        pass\n",
        RUNNING,
    ),
    (
        "apply goes by the configured source of running images alone",
        "targets/oci/purge/running_choice.py",
        "    return recorded.name\n",
        "    return shop.running\n",
        RUNNING,
    ),
    (
        "a merge loses the source of running images",
        "targets/oci/records/identity.py",
        "        _move_running_source(connection, uid, other)\n",
        "",
        SOURCES,
    ),
    (
        "a rehearsal adopts a real registry",
        "targets/oci/purge/identity.py",
        "        if self.rehearsal is not rehearsal:\n",
        "        if False:\n",
        REHEARSED,
    ),
    (
        "a marker without a kind is a rehearsal's",
        "targets/oci/purge/identity.py",
        '    kind = found.get(f"{MARKER_PREFIX}kind", "real")\n',
        '    kind = found.get(f"{MARKER_PREFIX}kind", "rehearsal")\n',
        REHEARSED,
    ),
    (
        "the marker of a rehearsal does not say so",
        "targets/oci/purge/identity.py",
        "    marker = RegistryMarker.new(shop.name, rehearsal=shop.ledger.rehearsal)\n    if known",
        "    marker = RegistryMarker.new(shop.name)\n    if known",
        REHEARSED,
    ),
    (
        "S3 on this machine goes through a proxy",
        "storage/s3_client.py",
        "            proxies={} if is_local else None,\n",
        "",
        LEAVING,
    ),
    (
        "a rehearsal's S3 requests go to another host",
        "storage/s3_client.py",
        '        client.meta.events.register_first("before-send.s3", _check_local)\n',
        "        pass\n",
        LEAVING,
    ),
    (
        "a rehearsal asks servers for credentials",
        "storage/s3_client.py",
        " if one.METHOD in _LOCAL_CREDENTIALS]",
        "]",
        LEAVING,
    ),
    (
        "a rehearsal's registry goes through a proxy",
        "targets/oci/client/distribution.py",
        "proxies=not (options.local_only or address.is_loopback),",
        "proxies=not address.is_loopback,",
        LEAVING,
    ),
    (
        "a rehearsal follows a registry to another host",
        "targets/oci/client/http.py",
        'event_hooks={"request": [_check_local] if options.local_only else []},',
        "event_hooks={},",
        LEAVING,
    ),
    (
        "a rehearsal asks a cluster elsewhere what runs",
        "targets/oci/purge/running_choice.py",
        "    if shop.ledger.rehearsal and is_cluster(source):\n",
        "    if False:\n",
        LEAVING,
    ),
    (
        "a rehearsal's database is moved by PGHOSTADDR",
        "state/database.py",
        '_parameter(parsed, "hostaddr", "PGHOSTADDR")',
        '_parameter(parsed, "hostaddr", "")',
        LEAVING,
    ),
    (
        "a rehearsal's database is named by a service",
        "state/database.py",
        '    if _parameter(parsed, "service", "PGSERVICE"):\n',
        "    if False:\n",
        LEAVING,
    ),
    (
        "a listing of images does not know the runs that just ended",
        "engine/removed_table.py",
        "                parts += [part.filter(went_since(moment)) for part in self._outcomes(one, None)]\n",
        "                pass\n",
        PAST_PURGES,
    ),
    (
        "every past purge explains an empty registry",
        "state/runs.py",
        "where(c.target_uid == target_uid, ended, c.state.not_in(_WITHOUT_DELETES))",
        "where(c.target_uid == target_uid, c.state.not_in(_WITHOUT_DELETES))",
        PAST_PURGES,
    ),
    (
        "a plan explains an empty registry",
        "state/runs.py",
        "where(c.target_uid == target_uid, ended, c.state.not_in(_WITHOUT_DELETES))",
        "where(c.target_uid == target_uid, ended)",
        PAST_PURGES,
    ),
    (
        "a merge loses what runs have removed",
        "targets/oci/records/identity.py",
        '            connection.execute(unfolded, {"other": other})\n',
        "",
        IDENTITY,
    ),
)
