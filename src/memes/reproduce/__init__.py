"""Reproduction of the paper: its experiments, the sweep of their runs, and verdicts on its claims.

The module `experiments` contains the table of experiments. The module `claims` contains the table of
claims. Each claim consists of `checks`, which compare `quantities`.
"""
