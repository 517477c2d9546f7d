"""Reproduction of the paper: experiments, a sweep that computes their runs, and verdicts on claims.

The module `experiments` contains the table of experiments, and the module `claims` contains the table of
claims. Each claim consists of `checks`, which compare `quantities`.
"""
