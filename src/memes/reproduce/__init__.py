"""The paper's experiments: their runs, the sweep that computes them, and verdicts on the paper's claims.

`experiments` is the table of experiments. `claims` is the table of claims, which are composed of
`checks` of `quantities`.
"""
