"""
The verdicts on a registry, computed on Spark for registries of any size.

1. :mod:`graph` numbers the manifests, checks the tables, and finds which manifests keep which.
2. :mod:`expiry` computes until when each tag and manifest stays by itself.
3. :mod:`holds` finds what running images and keep_newest rules hold.
4. :mod:`graph` propagates expiry and holds from holders to what they hold, until nothing changes.
5. :mod:`verdicts` decides and says why, and counts every blob once.

Nothing here calls the oracle or is called by it: they share the model, the policies and the words for holds,
and a property test compares their verdicts. No table is collected in one place, and no step works on a whole
repository at once, since one repository may contain everything.
"""
