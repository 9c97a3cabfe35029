"""botocore's model of lifecycle configurations: loaded late, as shipped, and the words of our rules."""

import json
import os
import subprocess
import sys

import pytest
from tests.unit.s3.as_xml import as_xml
from tests.unit.s3.refused import rule

from ebbtide.core.errors import LifecycleError
from ebbtide.targets.s3.rules.configuration import MINIMUM_SIZE, MinimumSize
from ebbtide.targets.s3.rules.document import _CONVERTED, read_configuration, read_configuration_text
from ebbtide.targets.s3.rules.service_model import put_parameters
from ebbtide.targets.s3.rules.storage_classes import CHEAPEST_FIRST


def run_python(program, **environment):
    """Run a program in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout


def model_of_a_rule():
    """Return botocore's shape of a rule."""
    return put_parameters()["LifecycleConfiguration"].members["Rules"].member


def test_the_words_of_the_model_are_ours():
    """Storage classes, minimum sizes and states are those of botocore's model, no more and no fewer."""
    rule_shape = model_of_a_rule()

    assert set(CHEAPEST_FIRST) == set(rule_shape.members["Transitions"].member.members["StorageClass"].enum)
    assert set(MinimumSize) == set(put_parameters()[MINIMUM_SIZE].enum)
    assert ["Enabled", "Disabled"] == rule_shape.members["Status"].enum


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ([], {"Hue": "red"}),
        (["Filter"], {"Filter": {"Hue": "red"}}),
        (["Filter", "And"], {"Filter": {"And": {"Prefix": "a", "Hue": "red"}}}),
        (["Expiration"], {"Expiration": {"Days": 1, "Hue": "red"}}),
    ],
)
def test_a_field_of_a_later_model_is_refused(monkeypatch, place, changes):
    """A field that a later botocore knows is refused, not ignored: without it a rule could match more."""
    shape = model_of_a_rule()
    text = shape.members["ID"]
    for name in place:
        shape = shape.members[name]
    monkeypatch.setitem(shape.members, "Hue", text)
    found = f"rule 1: {'.'.join([*place, 'Hue'])} is not supported"

    with pytest.raises(LifecycleError, match=found):
        read_configuration([rule(**changes)])
    with pytest.raises(LifecycleError, match=found):
        read_configuration_text(as_xml([rule(**changes)]), "xml")


def test_every_field_of_the_model_is_converted():
    """No field that botocore knows today is refused as unsupported."""
    fields = {}

    def walk(path, shape):
        if shape.type_name == "list":
            walk(path, shape.member)
        elif shape.type_name == "structure":
            fields[path] = set(shape.members)
            for name, member in shape.members.items():
                walk(f"{path}.{name}".removeprefix("."), member)

    walk("", model_of_a_rule())

    assert _CONVERTED == fields


def test_botocore_is_loaded_late():
    """Whoever imports the package without reading a document does not wait for botocore."""
    program = (
        "import sys; import ebbtide.cli.bucket_rules; "
        "import ebbtide.targets.s3.rules.document, ebbtide.targets.s3.rules.warnings; "
        "print(sorted({'botocore', 'defusedxml'} & set(sys.modules)))"
    )

    assert "[]\n" == run_python(program)


def test_the_users_aws_settings_do_not_change_what_is_valid(tmp_path):
    """A missing profile and a model of S3 in ~/.aws/models are ignored."""
    models = tmp_path / ".aws" / "models" / "s3" / "2099-01-01"
    models.mkdir(parents=True)
    (models / "service-2.json").write_text(json.dumps({"metadata": {}, "operations": {}, "shapes": {}}))
    program = (
        "from ebbtide.targets.s3.rules.document import _CONVERTED, read_configuration; "
        f"print(len(read_configuration({[rule()]!r}).rules))"
    )

    assert "1\n" == run_python(program, HOME=str(tmp_path), AWS_PROFILE="missing")
