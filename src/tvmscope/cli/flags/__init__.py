"""Every flag once; a group is a function whose parameters are flags and whose result is options.

Commands take the groups; no flag is read anywhere else.
"""
