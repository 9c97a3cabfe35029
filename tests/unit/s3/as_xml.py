"""Rules in boto3's form as XML, written by another hand than the one that is tested."""

from xml.etree import ElementTree as ET

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_ITEMS = {
    "Rules": "Rule",
    "Transitions": "Transition",
    "NoncurrentVersionTransitions": "NoncurrentVersionTransition",
    "Tags": "Tag",
}


def as_xml(rules, *, namespace=NAMESPACE):
    """Write rules, also such as nobody would take, as an XML document."""
    root = ET.Element("LifecycleConfiguration", {"xmlns": namespace} if namespace else {})
    _fill(root, {"Rules": rules})
    return ET.tostring(root, encoding="unicode")


def _fill(parent, value):
    """Put a value into its element."""
    if isinstance(value, dict):
        for name, part in value.items():
            for item in part if isinstance(part, list) else [part]:
                _fill(ET.SubElement(parent, _ITEMS.get(name, name)), item)
    else:
        parent.text = str(value).lower() if isinstance(value, bool) else str(value)
