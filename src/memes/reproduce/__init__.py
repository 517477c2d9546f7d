"""The paper's experiments: what they run, the sweep that runs it, and what that says of its claims.

`experiments` is the table of what is run, and `claims` that of what is claimed, made of `checks` of
`quantities`.
"""
