"""Ways to break what keeps image purges and rehearsals to the registry, the source and the machine meant."""

from __future__ import annotations

IDENTITY = ("tests/contract/records/test_identity.py",)
PAST_PURGES = ("tests/unit/registry_purge/test_past_purges.py",)
RUNNING = ("tests/incidents/test_registry_running.py",)
LEAVING = ("tests/incidents/test_leaving_rehearsals.py",)
REHEARSED = ("tests/incidents/test_rehearsed_registries.py",)
SOURCES = ("tests/contract/records/test_running_sources.py",)
EMPTYING = ("tests/unit/cli/test_image_recycle.py",)
RECHECK = ("tests/unit/registry_purge/test_recheck.py", "tests/property/test_new_tags_survive.py")

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
        "targets/oci/running_source.py",
        "        context.records.record_source(context.uid, named_source(context.running), current_user())\n",
        "        pass\n",
        RUNNING,
    ),
    (
        "apply goes by the configured source of running images alone",
        "targets/oci/running_source.py",
        "    return recorded.name\n",
        "    return context.running\n",
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
        "    marker = RegistryMarker.new(context.name, rehearsal=context.ledger.rehearsal)\n    if known",
        "    marker = RegistryMarker.new(context.name)\n    if known",
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
        "targets/oci/running_source.py",
        "    if context.ledger.rehearsal and is_cluster(source):\n",
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
    (
        "a tag that is put on an image after the scan is lost with it",
        "targets/oci/purge/recheck.py",
        "            if digest != self._scanned.get(tag):\n",
        "            if False:\n",
        RECHECK,
    ),
    (
        "a known tag that is moved to an image after the scan is lost with it",
        "targets/oci/purge/recheck.py",
        "        if self._manifests_left <= 0:\n",
        "        if False:\n",
        RECHECK,
    ),
    (
        "an index that is tagged after the scan loses its children",
        "targets/oci/purge/recheck.py",
        "                waiting += self._children_of(tag, one)\n",
        "",
        RECHECK,
    ),
    (
        "an image that is tagged after the scan loses its signatures",
        "targets/oci/purge/recheck.py",
        '            yield str(row["subject"] or "")\n',
        '            yield ""\n',
        RECHECK,
    ),
    (
        "a list of tags that lacks known ones is believed before a delete",
        "targets/oci/purge/recheck.py",
        "        self._check_list(names)\n",
        "",
        RECHECK,
    ),
    (
        "tags are listed once before many deletes",
        "targets/oci/purge/recheck.py",
        "            if self._done <= asked:\n",
        "            if not self._done:\n",
        RECHECK,
    ),
    (
        "a tag of an unknown kind needs nothing",
        "targets/oci/purge/recheck.py",
        "        if not_understood:\n",
        "        if False:\n",
        RECHECK,
    ),
    (
        "a tag that is put while an image is copied is lost",
        "targets/oci/purge/actor.py",
        "            kept = self._newly_needed(group)\n",
        "",
        RECHECK,
    ),
    (
        "a user without a role applies the emptying of a bin",
        "targets/oci/bin/image_bin.py",
        '            self._require(f"empty the bin by run {plan.run_id}", self._where)\n',
        "            pass\n",
        EMPTYING,
    ),
)
