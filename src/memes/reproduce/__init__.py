"""Experiments that reproduce the paper, a sweep that computes their runs, and the paper's claims.

The module `experiments` contains the table of experiments, and the module `claims` contains the table of
claims. The verdict on a claim depends on its checks, which are defined in the module `checks`. Checks
compare quantities, which are defined in the module `quantities`.
"""
