"""Every configuration that S3 refuses, with its code: one line for each rule of validation."""

GOOD = {"Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}


def rule(**changes):
    """Take a good rule and change it; what is None is left out."""
    return {name: value for name, value in (GOOD | changes).items() if value is not None}


def where(predicates):
    """Give a good rule this filter."""
    return [rule(Filter=predicates)]


def tag(key="k", value="v"):
    """Make a tag."""
    return {"Key": key, "Value": value}


def move(**when):
    """Make a transition to Glacier."""
    return {"StorageClass": "GLACIER"} | when


MIDNIGHT = "2030-01-01T00:00:00Z"
TOO_MANY = 2**31

MALFORMED = {
    "1001 rules": [rule()] * 1001,
    "no rule": [],
    "no status": [rule(Status=None)],
    "status in lower case": [rule(Status="enabled")],
    "status that is none": [rule(Status="On")],
    "status empty": [rule(Status="")],
    "class unknown": [rule(Transitions=[{"Days": 1, "StorageClass": "ICE"}])],
    "class of no transition": [rule(Transitions=[{"Days": 1, "StorageClass": "STANDARD"}])],
    "class missing": [rule(Transitions=[{"Days": 1}])],
    "noncurrent class unknown": [
        rule(NoncurrentVersionTransitions=[{"NoncurrentDays": 1, "StorageClass": "glacier"}])
    ],
    "noncurrent class missing": [rule(NoncurrentVersionTransitions=[{"NoncurrentDays": 1}])],
    "neither filter nor prefix": [rule(Filter=None)],
    "filter and prefix": [rule(Prefix="a")],
    "filter and empty prefix": [rule(Prefix="")],
    "prefix and tag side by side": where({"Prefix": "a", "Tag": tag()}),
    "prefix and size side by side": where({"Prefix": "a", "ObjectSizeGreaterThan": 1}),
    "two sizes side by side": where({"ObjectSizeGreaterThan": 1, "ObjectSizeLessThan": 9}),
    "and beside a prefix": where({"Prefix": "a", "And": {"Prefix": "a", "Tags": [tag()]}}),
    "and of nothing": where({"And": {}}),
    "and of a prefix": where({"And": {"Prefix": "a"}}),
    "and of one tag": where({"And": {"Tags": [tag()]}}),
    "and of one size": where({"And": {"ObjectSizeLessThan": 3}}),
    "tag without value": where({"Tag": {"Key": "k"}}),
    "tag without key": where({"Tag": {"Value": "v"}}),
    "tag without value in and": where({"And": {"Prefix": "a", "Tags": [{"Key": "k"}]}}),
    "days and date": [rule(Expiration={"Days": 1, "Date": MIDNIGHT})],
    "marker and days": [rule(Expiration={"Days": 1, "ExpiredObjectDeleteMarker": True})],
    "false marker and days": [rule(Expiration={"Days": 1, "ExpiredObjectDeleteMarker": False})],
    "marker and date": [rule(Expiration={"Date": MIDNIGHT, "ExpiredObjectDeleteMarker": True})],
    "too many days": [rule(Expiration={"Days": TOO_MANY})],
    "too many days of transition": [rule(Transitions=[move(Days=TOO_MANY)])],
    "too many noncurrent days": [rule(NoncurrentVersionExpiration={"NoncurrentDays": TOO_MANY})],
    "too many days of upload": [rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": TOO_MANY})],
    "more than 64 bits": [rule(Expiration={"Days": 2**64})],
    "size of more than 64 bits": where({"ObjectSizeGreaterThan": 2**63}),
    "empty expiration": [rule(Expiration={})],
    "transition without time": [rule(Transitions=[move()])],
    "transition with two times": [rule(Transitions=[move(Days=1, Date=MIDNIGHT)])],
    "no noncurrent days": [rule(NoncurrentVersionExpiration={"NewerNoncurrentVersions": 3})],
    "empty noncurrent expiration": [rule(NoncurrentVersionExpiration={})],
    "no noncurrent days of transition": [rule(NoncurrentVersionTransitions=[move()])],
    "no days of upload": [rule(AbortIncompleteMultipartUpload={})],
    "unknown field of a rule": [rule(Expire={"Days": 1})],
    "unknown field of an action": [rule(Expiration={"days": 1})],
    "unknown field of a filter": where({"Suffix": ".log"}),
    "days that are no number": [rule(Expiration={"Days": "soon"})],
    "days with a fraction": [rule(Expiration={"Days": 1.5})],
    "a flag that is none": [rule(Expiration={"ExpiredObjectDeleteMarker": "yes"})],
    "a table for a number": [rule(Expiration={"Days": {"Days": 1}})],
    "a text for a table": [rule(Expiration="1")],
}

ARGUMENT = {
    "id twice": [rule(ID="a"), rule(ID="b"), rule(ID="a")],
    "id too long": [rule(ID="x" * 256)],
    "zero days": [rule(Expiration={"Days": 0})],
    "negative days": [rule(Expiration={"Days": -1})],
    "negative days of transition": [rule(Transitions=[move(Days=-1)])],
    "negative noncurrent days of transition": [rule(NoncurrentVersionTransitions=[move(NoncurrentDays=-1)])],
    "zero noncurrent days": [rule(NoncurrentVersionExpiration={"NoncurrentDays": 0})],
    "zero newer versions": [
        rule(NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 0})
    ],
    "101 newer versions": [
        rule(NoncurrentVersionExpiration={"NoncurrentDays": 1, "NewerNoncurrentVersions": 101})
    ],
    "101 newer versions of transition": [
        rule(NoncurrentVersionTransitions=[move(NoncurrentDays=1, NewerNoncurrentVersions=101)])
    ],
    "zero days of upload": [rule(AbortIncompleteMultipartUpload={"DaysAfterInitiation": 0})],
    "date that is none": [rule(Expiration={"Date": "tomorrow"})],
    "date in digits alone": [rule(Expiration={"Date": "20300101"})],
    "date of another calendar": [rule(Expiration={"Date": "2030-W01-1"})],
    "date as in mail": [rule(Expiration={"Date": "Tue, 01 Jan 2030 00:00:00 GMT"})],
    "date that does not exist": [rule(Expiration={"Date": "2030-02-30T00:00:00Z"})],
    "date off the calendar": [rule(Expiration={"Date": "0001-01-01T00:00:00+02:00"})],
    "date at noon": [rule(Expiration={"Date": "2030-01-01T12:00:00Z"})],
    "date a moment after midnight": [rule(Expiration={"Date": "2030-01-01T00:00:00.000001Z"})],
    "date at another midnight": [rule(Expiration={"Date": "2030-01-01T00:00:00+02:00"})],
    "transition date at noon": [rule(Expiration=None, Transitions=[move(Date="2030-01-01T12:00:00Z")])],
    "transitions on one day": [rule(Transitions=[move(Days=5), {"Days": 5, "StorageClass": "DEEP_ARCHIVE"}])],
    "transitions at one date": [
        rule(
            Expiration=None,
            Transitions=[move(Date=MIDNIGHT), {"Date": MIDNIGHT, "StorageClass": "DEEP_ARCHIVE"}],
        )
    ],
    "noncurrent transitions on one day": [
        rule(
            NoncurrentVersionTransitions=[
                move(NoncurrentDays=0),
                {"NoncurrentDays": 0, "StorageClass": "DEEP_ARCHIVE"},
            ]
        )
    ],
}

REQUEST = {
    "no action": [rule(Expiration=None)],
    "no action but empty lists": [rule(Expiration=None, Transitions=[])],
    "days and date in two actions": [rule(Expiration={"Date": MIDNIGHT}, Transitions=[move(Days=1)])],
    "days and date in two transitions": [
        rule(
            Expiration=None,
            Transitions=[move(Days=1), {"Date": MIDNIGHT, "StorageClass": "DEEP_ARCHIVE"}],
        )
    ],
    "one class twice": [rule(Transitions=[move(Days=1), move(Days=9)])],
    "one noncurrent class twice": [
        rule(NoncurrentVersionTransitions=[move(NoncurrentDays=1), move(NoncurrentDays=9)])
    ],
    "prefix too long": where({"Prefix": "x" * 1025}),
    "prefix too long in bytes": where({"Prefix": "ü" * 513}),
    "legacy prefix too long": [rule(Filter=None, Prefix="x" * 1025)],
    "tag key empty": where({"Tag": tag("")}),
    "tag key too long": where({"Tag": tag("k" * 129)}),
    "tag value too long": where({"Tag": tag(value="v" * 257)}),
    "tag key twice": where({"And": {"Tags": [tag("k", "1"), tag("k", "2")]}}),
    "tag with upload": [
        rule(Filter={"Tag": tag()}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1})
    ],
    "tag with marker": [rule(Filter={"Tag": tag()}, Expiration={"ExpiredObjectDeleteMarker": True})],
    "tag with false marker": [rule(Filter={"Tag": tag()}, Expiration={"ExpiredObjectDeleteMarker": False})],
    "tags in and with marker": [
        rule(Filter={"And": {"Prefix": "a", "Tags": [tag()]}}, Expiration={"ExpiredObjectDeleteMarker": True})
    ],
    "size with upload": [
        rule(Filter={"ObjectSizeGreaterThan": 1}, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1})
    ],
    "sizes that leave none": where({"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 9}}),
    "sizes in the wrong order": where({"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 3}}),
    "negative least size": where({"ObjectSizeGreaterThan": -1}),
    "no size is less": where({"ObjectSizeLessThan": 0}),
    "negative most size": where({"ObjectSizeLessThan": -1}),
    "size beyond all": where({"ObjectSizeGreaterThan": 1_099_511_627_776_001}),
}

REFUSED = [
    (name, rules, code)
    for code, table in (
        ("MalformedXML", MALFORMED),
        ("InvalidArgument", ARGUMENT),
        ("InvalidRequest", REQUEST),
    )
    for name, rules in table.items()
]

ONLY_JSON = {
    "days as a text": [rule(Expiration={"Days": "1"})],
    "days as true": [rule(Expiration={"Days": True})],
    "flag as a number": [rule(Expiration={"ExpiredObjectDeleteMarker": 1})],
    "id as a number": [rule(ID=1)],
    "id empty": [rule() | {"ID": None}],
    "date as a number": [rule(Expiration={"Date": 1893456000})],
    "filter as a list": [rule(Filter=[])],
    "rule that is none": ["Expiration"],
    "transitions as a table": [rule(Transitions=move(Days=1))],
    "transition as a list": [rule(Transition=[move(Days=1)])],
    "transition and transitions": [rule(Transition=move(Days=1), Transitions=[])],
    "no tags in and": where({"And": {"Prefix": "a", "ObjectSizeLessThan": 3, "Tags": []}}),
    "characters that XML cannot carry": where({"Prefix": "a\x00b"}),
    "half a character": where({"Prefix": "\ud800"}),
    "expiration null": [rule() | {"Expiration": None}],
}
