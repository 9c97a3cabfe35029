"""The catalog with its objects and ranges in an S3 bucket."""

import pytest

from ebbtide.core.errors import LiveObjectMissing, Refused
from ebbtide.storage.store import DeleteRequest
from ebbtide.targets.lake.catalog.catalog import Catalog


def test_a_repository_lives_in_a_bucket_as_in_a_folder(s3_server, bucket, tmp_path):
    """Upload, commit, copy, branch, merge and read work the same, and a missing object is an alarm."""
    catalog = Catalog(f"sqlite:///{tmp_path}/catalog.db", store_options=s3_server.options, range_keys=10)
    catalog.create_repository("lake", f"s3://{bucket}/lake")
    catalog.upload_many("lake", "main", [(f"k{i:03d}", str(i).encode()) for i in range(50)])
    catalog.commit("lake", "main", "m")
    catalog.create_branch("lake", "b1", "main")
    copied = catalog.copy("lake", "b1", "k007", "copied", source_ref="main")
    catalog.delete("lake", "b1", "k000")
    catalog.commit("lake", "b1", "m")
    catalog.merge("lake", "b1", "main", "m")

    keys = [entry.key for entry in catalog.ls("lake", "main")]

    assert ["copied", *(f"k{i:03d}" for i in range(1, 50))] == keys
    assert catalog.read("lake", "main", "copied") == b"7"
    catalog.store("lake").delete([DeleteRequest(copied.address)])
    with pytest.raises(LiveObjectMissing, match=copied.address):
        catalog.read("lake", "main", "copied")
    catalog.close()


@pytest.mark.parametrize("place", ["/lake", "/lake/inner", ""])
def test_a_second_catalog_is_refused_in_a_bucket(s3_server, bucket, tmp_path, place):
    """A prefix that is, holds or lies in another catalog's lake is refused, whatever the server is called."""
    first = Catalog(f"sqlite:///{tmp_path}/first.db", store_options=s3_server.options)
    first.create_repository("lake", f"s3://{bucket}/lake")
    alias = s3_server.options | {"endpoint": s3_server.endpoint.replace("127.0.0.1", "localhost")}
    second = Catalog(f"sqlite:///{tmp_path}/second.db", store_options=alias)

    with pytest.raises(Refused, match="namespace of repository 'lake'"):
        second.create_repository("mine", f"s3://{bucket}{place}")
    first.check_identity("lake")
    first.close()
    second.close()
