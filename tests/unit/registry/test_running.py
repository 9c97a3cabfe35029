"""What runs is read from pod lists, lists and lines, and nothing that runs is passed over."""

from __future__ import annotations

import json
import re

import pytest

from ebbtide.core.errors import WorldError
from ebbtide.core.instant import parse_instant
from ebbtide.targets.oci.model import RunningImages, RunningReference
from ebbtide.targets.oci.running import read_reference, read_running, without_host

A = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app", RunningReference("app", "latest")),
        ("team/app:v1", RunningReference("team/app", "v1")),
        (f"team/app@{A}", RunningReference("team/app", None, A)),
        (f"team/app:v1@{A}", RunningReference("team/app", "v1", A)),
        ("host:5000/app", RunningReference("host:5000/app", "latest")),
        ("host:5000/app:v1", RunningReference("host:5000/app", "v1")),
        ("[::1]:5000/app:v1", RunningReference("[::1]:5000/app", "v1")),
        (f"docker-pullable://host/app@{A}", RunningReference("host/app", None, A)),
        (f"docker://{A}", RunningReference(None, None, A)),
        (A, RunningReference(None, None, A)),
    ],
)
def test_a_reference_is_taken_apart(text, expected):
    """Host, repository, tag and digest are told apart, and a runtime's prefix is dropped."""
    assert expected == read_reference(text, "here")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":v1",
        "app:",
        "app@",
        "app@x",
        "app:v 1",
        "a b",
        "@sha256:aa",
        "app:-v",
        "app:v1:v2",
        "a:b/c",
        "a//b",
    ],
)
def test_what_is_no_reference_is_refused(text):
    """A name that is not understood stops the run: what it names would not be protected."""
    with pytest.raises(WorldError, match="is not an image"):
        read_reference(text, "here")


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("app", "app"),
        ("team/app", "team/app"),
        ("registry.example.com/team/app", "team/app"),
        ("host:5000/app", "app"),
        ("localhost/app", "app"),
        ("[::1]:5000/app", "app"),
        ("docker.io/library/nginx", "nginx"),
        ("library/nginx", "nginx"),
    ],
)
def test_a_host_does_not_count(repository, expected):
    """Mirrors and ports differ; the repository is what counts."""
    assert expected == without_host(repository)


def pod_list(**more):
    """Write a pod list as Kubernetes does."""
    pod = {
        "metadata": {"name": "web", "namespace": "prod"},
        "spec": {
            "containers": [{"name": "web", "image": "host/app:v1"}],
            "initContainers": [{"name": "init", "image": "host/init:v2"}],
            "ephemeralContainers": [{"name": "look", "image": "host/debug"}],
            "volumes": [{"image": {"reference": "host/model:v3"}}, {"emptyDir": {}}, {"image": {}}],
        },
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [{"image": "host/app:v1", "imageID": f"docker-pullable://host/app@{A}"}],
            "initContainerStatuses": [{"image": "sha256:cc", "imageID": ""}],
            "ephemeralContainerStatuses": [{"image": "host/debug:latest", "imageID": "host/debug@sha256:dd"}],
        },
    }
    waiting = {"spec": {"containers": [{"image": "host/next:v1"}]}, "status": {"phase": "Pending"}}
    return {"apiVersion": "v1", "kind": "List", "items": [pod, waiting], "metadata": {}} | more


def test_a_pod_list_names_images_and_digests():
    """Of every container image and digest count, whatever the pod's phase, and images of volumes too."""
    found = read_running(json.dumps(pod_list()), "pods.json")

    assert {
        RunningReference("host/app", "v1"),
        RunningReference("host/init", "v2"),
        RunningReference("host/debug", "latest"),
        RunningReference("host/app", None, A),
        RunningReference(None, None, "sha256:cc"),
        RunningReference("host/debug", None, "sha256:dd"),
        RunningReference("host/next", "v1"),
        RunningReference("host/model", "v3"),
    } == set(found.references)
    assert ("", None) == (found.failed, found.scanned_at)


@pytest.mark.parametrize(
    "text",
    [
        '["app:v1"]',
        '{"images": ["app:v1"]}',
        '{"running": [{"image": "app:v1"}]}',
        '[{"repository": "app", "tag": "v1"}]',
        "app:v1\n",
        "# what runs\n\n  app:v1  # here\n",
    ],
)
def test_plain_lists(text):
    """A JSON list, a table around one, or lines of text name images."""
    assert RunningImages((RunningReference("app", "v1"),)) == read_running(text, "running.txt")


def test_a_scan_says_when_and_how_it_went():
    """A table may carry the time of the scan, and that it failed."""
    text = '{"images": ["app:v1"], "scanned_at": "2018-01-01", "failed": "half of the nodes were silent"}'
    expected = RunningImages(
        (RunningReference("app", "v1"),), parse_instant("2018-01-01"), "half of the nodes were silent"
    )

    assert expected == read_running(text, "running.json")
    assert read_running('{"failed": true}', "r").failed
    assert not read_running('{"failed": false, "images": []}', "r").failed
    assert read_running(json.dumps(pod_list(metadata={"continue": "abc"})), "r").failed


@pytest.mark.parametrize("items", [[], [{"kind": "Service", "spec": {"ports": []}}]])
def test_a_pod_list_without_an_image_is_a_scan_that_failed(items):
    """What kubectl prints where it may not look is no proof that nothing runs; a plain empty list is one."""
    empty = {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}

    assert "its pod list names no image" == read_running(json.dumps(empty), "pods.json").failed
    assert "" == read_running("[]", "running.json").failed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"failed": true, "failed": false, "images": []}', "'failed' is given twice"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("[", "is not JSON"),
        ("{}", "no list of what runs"),
        ('{"images": [], "items": []}', "or several"),
        ('{"imagez": []}', "did you mean 'images'"),
        ('{"images": {}}', "is not a list"),
        ('{"images": [], "scanned_at": "soon"}', "scanned_at"),
        ('{"images": [], "failed": 1}', "failed is 1"),
        ('["app:v1", 5]', "entry 2"),
        ("[{}]", "entry 1"),
        ('[{"tag": "v1"}]', "names no image"),
        ('[{"imge": "app"}]', "entry 1: 'imge'"),
        ('[{"spec": {"containers": 5}}]', "not a list of tables"),
        ("app:v1\na b\n", "line 2"),
    ],
)
def test_a_file_that_is_not_understood_is_refused(text, words):
    """An error says where the file is not understood and what to write."""
    with pytest.raises(WorldError, match=re.escape(words)) as refused:
        read_running(text, "running.json")

    assert refused.value.fix


@pytest.mark.parametrize(
    "item",
    [
        {
            "kind": "Deployment",
            "spec": {"replicas": 0, "template": {"spec": {"containers": [{"image": "a:1"}]}}},
        },
        {
            "kind": "CronJob",
            "spec": {"jobTemplate": {"spec": {"template": {"spec": {"initContainers": [{"image": "a:1"}]}}}}},
        },
    ],
)
def test_what_makes_pods_counts(item):
    """An image is known to be in use by what would start it, even if nothing runs at the moment."""
    assert (RunningReference("a", "1"),) == read_running(json.dumps({"items": [item]}), "pods").references
