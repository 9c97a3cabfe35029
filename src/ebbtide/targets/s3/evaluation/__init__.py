"""
The evaluation of lifecycle rules over an inventory, as Spark expressions.

1. :mod:`key_intervals` divides the key space into intervals in which the same rules match by prefix. Pure.
2. :mod:`rule_classes` computes, once per class of items, what the rules say of it. Pure.
3. :mod:`version_order` finds the position of each version among those of its key, and since when it has it.
4. :mod:`class_lookup` finds the class of each row, and so its terms, by binary search in small literals.
5. :mod:`verdicts` compares the terms with the time.

The cost per row does not depend on the number of rules. Only the binary searches grow, by one step when the
number of rules doubles.
"""
