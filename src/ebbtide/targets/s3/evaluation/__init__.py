"""
Evaluating lifecycle rules over an inventory, as Spark expressions.

1. :mod:`places` cuts the keys, sizes and tags into classes within which all rules say the same. Pure.
2. :mod:`terms` adds up, once for each class, what the rules say of it. Pure.
3. :mod:`ordering` finds each version's place among those of its key, and since when it has been there.
4. :mod:`lookup` finds the class of each row, and so its terms, by binary search in small literals.
5. :mod:`verdicts` compares the terms with the time.

The cost of a row does not depend on how many rules there are: only the binary searches grow, by a step when
the rules double.
"""
