"""
Doing, on the executors, what the rows of a bucket's plan ask for.

1. :mod:`planned` reads the rows.
2. :mod:`looking` lists the versions of their keys as they are now, in few requests.
3. :mod:`judging` compares the two: what is not as it was planned is left alone. Pure.
4. :mod:`requests` asks the store for the rest, in pages where that is safe and else one by one.
5. :mod:`deleter` does so run by run: a few keys are looked at and acted on before the next are looked at, so
   that little can happen between the two.

S3 has no request that deletes a version only if it is not the current one. Whoever deletes the newer versions
of a key in the moment between our look and our request makes current what we delete; the moment is short, and
nothing but the store could close it.
"""
