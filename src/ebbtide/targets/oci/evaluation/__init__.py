"""
Judging a registry on Spark: the verdicts are those of the oracle, whatever the size of the registry.

1. :mod:`ties` numbers the manifests, checks the tables, and finds which manifests keep which.
2. :mod:`own` asks the terms of each tag and manifest, by the very functions that the oracle uses.
3. :mod:`running` and :mod:`newest` find what is held from outside.
4. :mod:`fates` hands lapses and holds on from holders to what they hold, until nothing changes.
5. :mod:`verdicts` decides and says why; :mod:`sizes` counts every blob once.

No table is ever gathered in one place, and no step works on a whole repository at once: one may hold all.
"""
