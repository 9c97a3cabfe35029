"""
The actions of a bucket's plan on the executors: delete versions, expire objects, abort uploads.

1. :mod:`deleter` divides the rows of a task into chunks of keys and acts on one chunk after the other.
2. :mod:`recheck` lists the keys of a chunk again, in few requests, and compares them with the plan. What is
   not as planned is left alone.
3. :mod:`requests` sends the requests, in bulk where that is safe and one by one otherwise.

S3 has no request that deletes a version only if it is not the current one. If a client deletes the newer
versions of a key between our check and our request, the version that we delete has become current. This time
is short, and only the store could close the gap.
"""
